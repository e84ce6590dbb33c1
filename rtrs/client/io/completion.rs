// SPDX-License-Identifier: GPL-2.0

//! The end of a request: response, acknowledged send, invalidated key.
//!
//! A request ends only when its memory cannot be reached over the wire any more:
//!
//! - a read into its buffer, when the response has come: its own memory never could be;
//! - any other read, when the server has invalidated its key, as its completion shows, or we have;
//! - a write, when the response has come and the send is complete: until then the device may send
//!   the data again. Its key, if it has one, is for local use only; it is invalidated together
//!   with the next registration, which saves an interrupt.

use kernel::prelude::*;
use kernel_ext::sync::Held;
use rdma::{Opcode, Qp, SendFlags, Success, WrBuffer};
use rtrs_core::{
    errno,
    proto::request::{
        parse_rkey,
        RkeyError, //
    },
};

use crate::client::{
    io::{
        connection::{
            ConnectionContext,
            Live,
            Tagged,
            ANSWER_LEN_MAX,
            KEY_LEN, //
        },
        postponed,
        request::{
            DataMapping,
            InFlight, //
        },
        table::{
            Entry,
            RequestTable, //
        }, //
    },
    path::error::PathError, //
};

impl ConnectionContext {
    /// Handles the response to request `id`, which came as a message in receive `n` or as a write,
    /// with its error number, and whether the server has invalidated our key.
    #[inline(always)]
    pub(crate) fn answered(
        &self,
        qp: &Qp<Self>,
        live: &Live,
        n: u32,
        wc: &Success,
        (entry, id): (&Entry, u16),
        (errno, invalidated): (u16, bool),
    ) {
        let requests = &*live.requests;
        let Some((mut held, sent)) = entry.claim_signaled() else {
            return self.fail(PathError::NotInFlight(id));
        };
        if held.sent.cid != self.cid {
            held.arm();
            return self.fail(PathError::NotInFlight(id));
        }
        // A message brings the chunk's new key.
        if wc.opcode() == Opcode::Receive {
            match new_key(live, n, wc, id) {
                Ok(key) => held.chunk.rkey = key,
                Err(fault) => {
                    held.arm();
                    return self.fail(fault);
                }
            }
        }

        let result = match errno {
            0 => Ok(()),
            errno => failed(errno),
        };
        let invalidated = invalidated
            && held.is_asked
            && self
                .invalidations
                .prove(held.mr.key(), held.keys.since(), held.sent_at);
        match held.sent.data {
            DataMapping::Copied if result.is_ok() => self.end_copied(requests, held, id),
            DataMapping::None | DataMapping::Copied => self.end(requests, held, id, result),
            DataMapping::FastRegRead if invalidated && held.tail_len == 0 => {
                self.end(requests, held, id, result);
            }
            DataMapping::FastRegRead if invalidated => {
                held.result = result;
                self.answered_with_tail(live, n, wc, held, id);
            }
            // The server was not asked to invalidate the key, or did not.
            DataMapping::FastRegRead => self.invalidate(qp, entry, held, id, result),
            DataMapping::Sges | DataMapping::FastReg if sent => {
                self.end_written(requests, held, id, result)
            }
            DataMapping::Sges | DataMapping::FastReg => {
                // The device may read the data again until the send is complete. Its completion is
                // most often there: it is noted in the entry, which no one waits for meanwhile.
                self.poll_send_cq();
                if held.was_signaled() {
                    return self.end_written(requests, held, id, result);
                }
                self.await_send(requests, held, id, result);
            }
        }
    }

    /// Has a write whose response says `result` wait for the completion of its send.
    #[cold]
    fn await_send(
        &self,
        requests: &RequestTable,
        mut held: Held<'_, InFlight>,
        id: u16,
        result: Result,
    ) {
        held.result = result;
        self.waits();
        match held.await_signal() {
            Some(held) => {
                self.waiting_is_over();
                self.end(requests, held, id, result);
            }
            None => self.poll_send_cq_or_notify(),
        }
    }

    /// Handles the response in receive `n` to a read with a tail, whose key is invalid.
    #[cold]
    #[inline(never)]
    fn answered_with_tail(
        &self,
        live: &Live,
        n: u32,
        wc: &Success,
        held: Held<'_, InFlight>,
        id: u16,
    ) {
        let result = held.result;
        if result.is_err() {
            return self.end(&live.requests, held, id, result);
        }
        let mut bytes = [0; ANSWER_LEN_MAX as usize];
        let len = KEY_LEN.wrapping_add(held.tail_len);
        let is_whole = wc.opcode() == Opcode::Receive && wc.byte_len() == len;
        let is_read = is_whole && live.receives.read(n, &mut bytes).is_ok();
        let Some(tail) = bytes
            .get(KEY_LEN as usize..len as usize)
            .filter(|_| is_read)
        else {
            held.arm();
            return self.fail(PathError::Tail(id));
        };
        self.note_answer(&held, id);
        live.requests.end_with_tail(held, tail);
    }

    /// Ends a request whose response has come.
    #[inline(always)]
    pub(crate) fn end(
        &self,
        requests: &RequestTable,
        held: Held<'_, InFlight>,
        id: u16,
        result: Result,
    ) {
        self.note_answer(&held, id);
        requests.end(held, result);
    }

    /// Notes that a request was answered: its chunk is held if it was lost with a path before.
    #[inline(always)]
    fn note_answer(&self, held: &InFlight, id: u16) {
        if held.sent.attempt.resent.was_lost() {
            self.path.session.quarantine.answered(id);
        }
    }

    /// Ends a write whose response has come, and whose send is complete.
    #[inline(always)]
    fn end_written(
        &self,
        requests: &RequestTable,
        held: Held<'_, InFlight>,
        id: u16,
        result: Result,
    ) {
        if result.is_err() {
            return self.end(requests, held, id, result);
        }
        self.note_answer(&held, id);
        requests.end_written(held);
    }

    /// Ends a read into its buffer, which has succeeded.
    #[inline(always)]
    fn end_copied(&self, requests: &RequestTable, held: Held<'_, InFlight>, id: u16) {
        self.note_answer(&held, id);
        requests.end_copied(held);
    }

    /// Invalidates the key of a request whose response says `result`, which ends when that
    /// completes. A tail does not stay until then.
    ///
    /// The invalidation is behind the registration: where that may not be posted yet, the response
    /// is put aside for the path's work item.
    #[cold]
    fn invalidate(
        &self,
        qp: &Qp<Self>,
        entry: &Entry,
        mut held: Held<'_, InFlight>,
        id: u16,
        result: Result,
    ) {
        held.result = match held.tail_len {
            0 => result,
            _ => result.and(Err(EIO)),
        };
        if entry.posted.has(&held.sending) {
            return self.invalidate_posted(qp, held, id);
        }
        postponed::put_aside(held);
        self.path.queue_put_aside();
    }

    /// Posts the invalidation of the key of a request whose response has come and whose
    /// registration is posted.
    #[cold]
    pub(crate) fn invalidate_posted(&self, qp: &Qp<Self>, held: Held<'_, InFlight>, id: u16) {
        let key = held.mr.key();
        // No signal can come before the work request is posted; if one did, the teardown would end
        // the request.
        self.waits();
        if let Some(held) = held.await_signal() {
            self.waiting_is_over();
            held.arm();
        }
        let tag = self.tags.encode(Tagged::Invalidate(id));
        let mut space = WrBuffer::new();
        let mut batch = qp.batch::<1, 0>(&mut space);
        batch.local_invalidate(tag, key, SendFlags::SIGNALED);
        if let Err(e) = batch.post() {
            self.fail(PathError::Post(e));
        }
        self.poll_send_cq_or_notify();
    }

    /// Fails the path because of an error of this connection.
    #[cold]
    pub(crate) fn fail(&self, fault: PathError) {
        self.path.fail_life(self.life, fault);
    }
}

/// Returns the new key of chunk `id`, which came in receive `n`.
#[inline(always)]
fn new_key(live: &Live, n: u32, wc: &Success, id: u16) -> Result<u32, PathError> {
    let mut bytes = [0; KEY_LEN as usize];
    if live.receives.read(n, &mut bytes).is_err() {
        return Err(PathError::Receive);
    }
    if wc.byte_len() < KEY_LEN {
        return Err(PathError::Rkey(RkeyError::Truncated));
    }
    parse_rkey(&bytes, id).map_err(PathError::Rkey)
}

/// Returns the error of a response.
#[cold]
fn failed(errno: u16) -> Result {
    errno::from_wire(errno)
}
