// SPDX-License-Identifier: GPL-2.0

//! The answers to requests: their work requests, and when they are posted.
//!
//! ```text
//!   read, ok     WRITE_WITH_IMM data, if the client wants that, else
//!                WRITE data, [SEND_WITH_INV client's key], answer [with the data's tail]
//!   read, error  [SEND_WITH_INV client's key], answer
//!   write        [REG_MR], answer
//! ```
//!
//! `answer` is SEND_WITH_IMM with the chunk's key under `always_invalidate`, else an empty
//! WRITE_WITH_IMM. REG_MR is posted if the chunk's key was invalidated for the request, which is
//! never done for a read.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use rdma::{
    Access,
    Batch,
    MessageBuffers,
    Qp,
    RemoteAddr,
    SendFlags, //
};
use rtrs_core::{
    errno,
    proto::{
        imm::{
            Imm,
            Response, //
        },
        request::{
            Malformed,
            Reply,
            Then, //
        },
        wire::{
            RkeyResponse,
            TAIL_LEN_MAX, //
        },
    },
};
use zerocopy::IntoBytes;

use crate::server::{
    io::{
        request::RequestContext,
        tag::Tagged, //
    },
    path::{
        connections::{
            Receiver,
            KEY_MESSAGE_LEN, //
        },
        error::PathError, //
    },
};

const IO: u32 = Tagged::Io.encode();
const REGISTER: u32 = Tagged::Register.encode();

/// Most work requests of an answer.
const ANSWER_WORK: usize = 4;
/// Most gather entries of an answer: the data's and the key message's.
const ANSWER_SEGMENTS: usize = 2;

/// The batch of an answer of any kind.
type LongAnswer<'a> = Batch<'a, Receiver, ANSWER_WORK, ANSWER_SEGMENTS>;

/// Answers the request of `context`. Any context.
#[inline]
pub(crate) fn answer(mut context: KBox<RequestContext>, result: Result) {
    context.status = result;
    context.forget_user();
    if context.is_read() && !context.filled {
        fill(&mut context);
    }
    send(context);
}

/// Zeroes the data of a read that the service has not filled: the chunk's old content must not
/// be sent.
#[cold]
fn fill(context: &mut RequestContext) {
    let len = context.data_len as usize;
    if context.status.is_ok() {
        context.status = context.memory().zero(0, len);
    }
}

/// Posts the answer of `context`, or queues it until the send queue has room for it.
fn send(context: KBox<RequestContext>) {
    // Within this guard the queue pair may be used although the context, and with it the reference
    // to the connections, is released already.
    let guard = rcu::read_lock();
    let connections = context.connections.under(&guard);
    let Some(connection) = connections.get(context.cid) else {
        return;
    };
    let receiver = connection.qp.handler();
    match receiver.send_queue.reserve() {
        Some(flags) => post(&connection.qp, context, flags),
        None => {
            receiver.send_queue.wait(context);
            // Room may have been made before the context was in the queue.
            send_waiting(&connection.qp);
        }
    }
}

/// Posts queued answers as long as there is room; releases them all if the path has failed. Called
/// when room has been made or the path has failed.
#[cold]
pub(crate) fn send_waiting(qp: &Qp<Receiver>) {
    let _guard = rcu::read_lock();
    let receiver = qp.handler();
    let send_queue = &receiver.send_queue;
    if receiver.path.is_up() {
        while let Some((context, flags)) = send_queue.next_with_room() {
            post(qp, context, flags);
        }
    }
    // No room is made any more.
    if !receiver.path.is_up() {
        while let Some(context) = send_queue.next_waiting() {
            receiver.path.release(context);
        }
    }
}

/// Posts the answer of `context`, for which room was reserved. Most are one work request, and say
/// that the request has succeeded.
#[inline(always)]
fn post(qp: &Qp<Receiver>, mut context: KBox<RequestContext>, flags: SendFlags) {
    let path = &qp.handler().path;
    if !path.is_up() {
        path.release(context);
        return;
    }

    if context.status.is_err() {
        return post_in_parts(qp, context, flags);
    }
    let mut space = rdma::WrBuffer::new();
    let mut batch = qp.batch::<1, 1>(&mut space);
    match (context.is_read(), context.reply) {
        (true, Some(reply)) if reply.then == Then::Nothing => {
            compose_registered_read(&mut batch, &context, &reply, flags);
        }
        (false, _) if !context.revoked => {
            let imm = success_imm(&context, false);
            finish(&mut batch, &mut context, path.chunks.keys(), 0, imm, flags);
        }
        _ => return post_in_parts(qp, context, flags),
    }
    // Released before the client has the answer: its next request for the chunk may come at once.
    path.release(context);
    if let Err(e) = batch.post() {
        path.fail(PathError::Post("answer", e));
    }
}

/// Does what [`post`] does for an answer of several work requests, or of no success. Not inlined,
/// and with a batch of its own, so that the usual one stays in registers.
#[inline(never)]
fn post_in_parts(qp: &Qp<Receiver>, mut context: KBox<RequestContext>, flags: SendFlags) {
    let path = &qp.handler().path;
    let mut space = rdma::WrBuffer::new();
    let mut batch = qp.batch::<ANSWER_WORK, ANSWER_SEGMENTS>(&mut space);
    let (tail_len, invalidate) = match context.reply.map(|reply| reply.then) {
        Some(Then::Tail { len, invalidate }) => (u32::from(len), invalidate),
        Some(Then::Invalidation) => (0, true),
        Some(Then::Response | Then::Nothing) | None => (0, false),
    };
    if tail_len != 0 && path.chunks.keys().is_none() {
        // Only a message with a key can have one.
        let why = Malformed::DescriptorLength(context.data_len.wrapping_sub(tail_len));
        let id = context.id;
        path.release(context);
        return path.fail(PathError::Request(id, why.into()));
    }
    match context.reply {
        Some(reply) => {
            // Parsing has checked that the tail is shorter than the data.
            let data_len = context.data_len.wrapping_sub(tail_len);
            compose_read(&mut batch, &mut context, &reply, data_len, invalidate);
        }
        None if context.is_read() => {}
        None => renew_key(&mut batch, &mut context),
    }
    let imm = imm_of(&context, invalidate);
    let tail_len = if context.status.is_ok() { tail_len } else { 0 };
    finish(
        &mut batch,
        &mut context,
        path.chunks.keys(),
        tail_len,
        imm,
        flags,
    );
    path.release(context);
    if let Err(e) = batch.post() {
        path.fail(PathError::Post("answer", e));
    }
}

/// Writes the work requests of the answer to a read, but the last one: `data_len` bytes, and the
/// invalidation if it is wanted. A read's chunk keeps its key.
#[inline(always)]
fn compose_read(
    batch: &mut LongAnswer<'_>,
    context: &mut RequestContext,
    reply: &Reply,
    data_len: u32,
    invalidate: bool,
) {
    let none = SendFlags::NONE;
    if context.status.is_ok() {
        // Disk and CPU have written it: from here on the device reads it.
        let data = context.mapping.for_device(0, data_len).segment();
        let target = RemoteAddr {
            addr: reply.addr,
            key: reply.rkey,
        };
        batch.write(IO, &[data], target, none);
    }
    if invalidate {
        batch.send_invalidate(IO, &[], reply.rkey, none);
    }
}

/// Writes the one work request of the answer to a read into memory that stays registered. The
/// chunk keeps its key, as that of any read: there is none to send.
#[inline(always)]
fn compose_registered_read(
    batch: &mut Batch<'_, Receiver, 1, 1>,
    context: &RequestContext,
    reply: &Reply,
    flags: SendFlags,
) {
    let data = context.mapping.for_device(0, context.data_len).segment();
    let target = RemoteAddr {
        addr: reply.addr,
        key: reply.rkey,
    };
    batch.write_imm(IO, &[data], target, success_imm(context, false), flags);
}

/// Writes the registration of the chunk under a new key, if its key was invalidated for the
/// request.
#[inline(always)]
fn renew_key(batch: &mut LongAnswer<'_>, context: &mut RequestContext) {
    if context.revoked {
        if let Some(region) = &mut context.region {
            // The new key is created at posting: a queued answer gets one, too (D20).
            context.revoked = false;
            context.key_written = false;
            region.update_key();
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            batch.reg_mr(REGISTER, region, access, SendFlags::NONE);
        }
    }
}

/// Writes the last work request of an answer, with the last `tail_len` bytes of the data if there
/// are keys.
#[inline(always)]
fn finish<const N: usize, const S: usize>(
    batch: &mut Batch<'_, Receiver, N, S>,
    context: &mut RequestContext,
    keys: Option<&MessageBuffers>,
    tail_len: u32,
    imm: u32,
    flags: SendFlags,
) {
    let (Some(region), Some(keys)) = (&context.region, keys) else {
        return batch.empty_write_imm(IO, imm, flags);
    };
    let index = u32::from(context.id);
    if !context.key_written {
        context.key_written = true;
        let message = RkeyResponse::new(context.id, region.key());
        // Index and length are within the path's messages, or `post` fails.
        let _ = keys.write(index, 0, message.as_bytes());
    }
    if tail_len != 0 {
        add_tail(context, keys, tail_len);
    }
    // Parsing has checked that the sum fits.
    let message = keys.segment(index, 0, KEY_MESSAGE_LEN.wrapping_add(tail_len));
    batch.send_imm(IO, &[message], imm, flags);
}

/// Copies the last `tail_len` bytes of a read's data behind the key. The CPU owns them: they are
/// not among those that the device reads in the chunk.
fn add_tail(context: &RequestContext, keys: &MessageBuffers, tail_len: u32) {
    let mut bytes = [0; TAIL_LEN_MAX as usize];
    let at = context.data_len.wrapping_sub(tail_len);
    if let Some(tail) = bytes.get_mut(..tail_len as usize) {
        // Both are in their memory, as parsing has checked.
        let _ = context.memory().copy_out(at as usize, tail);
        let _ = keys.write(context.id.into(), KEY_MESSAGE_LEN, tail);
    }
}

/// Returns the immediate that ends the request of `context`.
#[inline(always)]
fn imm_of(context: &RequestContext, invalidated: bool) -> u32 {
    match context.status {
        Ok(()) => success_imm(context, invalidated),
        Err(e) => error_imm(context.id, e, invalidated),
    }
}

/// Returns the immediate of a request that has succeeded.
#[inline(always)]
fn success_imm(context: &RequestContext, invalidated: bool) -> u32 {
    Imm::Response(Response::new(context.id, None, invalidated)).encode()
}

/// Returns the immediate of a failed request.
#[cold]
#[inline(never)]
fn error_imm(id: u16, error: Error, invalidated: bool) -> u32 {
    let error = Some(errno::to_wire(error));
    Imm::Response(Response::new(id, error, invalidated)).encode()
}
