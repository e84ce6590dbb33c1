// SPDX-License-Identifier: GPL-2.0

//! One connection's queue pair: its completions.

use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel_ext::sync::SetOnce;
use rdma::{
    Cq,
    Opcode,
    Qp,
    QpHandler,
    RecvRing,
    SendFlags,
    WorkCompletion, //
    WrBuffer,
};
use rtrs_core::proto::{
    imm::{
        Imm,
        Response, //
    },
    signal::ADMIN_RECEIVES, //
};

use crate::client::{
    io::table::RequestTable,
    path::{
        error::PathError,
        Path, //
    }, //
};

/// Chunk ids that the admin connection may have in flight: `proto::permit` keeps at most 8.
const ADMIN_IDS: u32 = 8;

/// [`ConnectionContext::invalidated`] holds no key: more than 32 bits hold.
const NO_KEY: u64 = u64::MAX;

/// Receives that are posted at a time, once as many have been used; a power of two.
pub(crate) const RECEIVE_BATCH: u32 = 16;

/// What the tags of a queue pair's work requests stand for: first the receives, then for each chunk
/// id the invalidation and the write that its request waits for, then the rest.
#[derive(Clone, Copy)]
pub(crate) struct Tags {
    /// The first tag of an invalidation, and the number of receives.
    invalidate: u32,
    /// The first tag of a write.
    write: u32,
    /// The first tag of the rest.
    rest: u32,
}

/// What a tag stands for that is none of the receives'.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// The invalidation of the key of this chunk id's request.
    Invalidate(u16),
    /// The data of this chunk id's request.
    Write(u16),
    /// A send that nobody waits for.
    Send,
    /// The info request.
    InfoRequest,
    /// The receive of the info response.
    InfoResponse,
}

impl Tags {
    /// Tags of the admin connection.
    pub(crate) const ADMIN: Self = Self::new(ADMIN_RECEIVES, ADMIN_IDS);

    /// Tags of an IO connection. A read is answered with up to two messages; the rest are those
    /// that have been used and wait for their batch.
    pub(crate) const fn io(queue_depth: u16) -> Self {
        Self::new(queue_depth as u32 * 2, queue_depth as u32)
    }

    const fn new(receives: u32, ids: u32) -> Self {
        let receives = receives.wrapping_add(RECEIVE_BATCH * 2);
        Self {
            invalidate: receives,
            write: receives.wrapping_add(ids),
            rest: receives.wrapping_add(ids).wrapping_add(ids),
        }
    }

    /// Returns how many there are.
    pub(crate) const fn count(self) -> u32 {
        self.rest.wrapping_add(3)
    }

    /// Returns how many receives there are, the first tags.
    pub(crate) const fn receives(self) -> u32 {
        self.invalidate
    }

    #[inline(always)]
    pub(crate) const fn encode(self, tagged: Tagged) -> u32 {
        match tagged {
            Tagged::Invalidate(id) => self.invalidate.wrapping_add(id as u32),
            Tagged::Write(id) => self.write.wrapping_add(id as u32),
            Tagged::Send => self.rest,
            Tagged::InfoRequest => self.rest.wrapping_add(1),
            Tagged::InfoResponse => self.rest.wrapping_add(2),
        }
    }

    #[inline(always)]
    pub(crate) const fn decode(self, tag: u32) -> Tagged {
        // CAST: the ids come from a u16.
        if tag < self.write {
            Tagged::Invalidate(tag.wrapping_sub(self.invalidate) as u16)
        } else if tag < self.rest {
            Tagged::Write(tag.wrapping_sub(self.write) as u16)
        } else {
            match tag.wrapping_sub(self.rest) {
                0 => Tagged::Send,
                1 => Tagged::InfoRequest,
                _ => Tagged::InfoResponse,
            }
        }
    }
}

/// What a connection will need to carry requests.
pub(crate) struct Ready {
    requests: Arc<RequestTable>,
    /// Receives that are kept posted, and how many of them are posted at a time.
    receives: u32,
    batch: u32,
}

impl Ready {
    /// For a connection with these tags, whose receive queue has `room` entries.
    pub(crate) fn new(requests: &Arc<RequestTable>, tags: Tags, room: u32) -> Result<Self> {
        // Devices may have less room than the protocol asks for.
        let receives = tags.receives().min(room);
        let needed = tags.receives().saturating_sub(RECEIVE_BATCH * 2);
        // Less than a batch may be missing at any time.
        let mut batch = RECEIVE_BATCH;
        while batch > 1 && receives.saturating_sub(needed) < batch * 2 {
            batch /= 2;
        }
        Ok(Self {
            requests: requests.clone(),
            receives,
            batch,
        })
    }
}

/// What a connection needs to carry requests.
pub(crate) struct Live {
    pub(crate) requests: Arc<RequestTable>,
    /// With room for a new key where responses bring one.
    pub(crate) receives: RecvRing,
}

/// What the completions of one connection need.
pub(crate) struct ConnectionContext {
    pub(crate) path: Arc<Path>,
    /// The life of the path that the connection belongs to: what fails later is no fault of the
    /// next.
    pub(crate) life: u16,
    pub(crate) cid: u16,
    /// The CPU that the connection is meant for.
    cpu: u32,
    pub(crate) tags: Tags,
    /// An IO connection is ready from the start; the admin connection is there before the requests
    /// are.
    ready: SetOnce<Ready>,
    /// Set when the server knows us.
    live: SetOnce<Live>,
    /// The key that the server said last that it invalidated, or [`NO_KEY`]. Only completions use
    /// it, and those of one queue pair come one after the other.
    invalidated: AtomicU64,
    /// Sends so far, from 1.
    sends: AtomicU32,
    /// A send whose number has none of these bits asks for a completion.
    signal_mask: u32,
    /// The completions of sends, which nobody is woken for. A write's is most often there when its
    /// answer comes, for it shows what the server has acknowledged before: it is looked for then.
    /// An interrupt for each of them cost more than everything else that we do for a write.
    done: Arc<Cq>,
    /// Requests that were answered and wait for such a completion.
    waiting: AtomicU32,
}

impl ConnectionContext {
    pub(crate) fn new(
        path: Arc<Path>,
        life: u16,
        cid: u16,
        tags: Tags,
        signal_mask: u32,
        done: Arc<Cq>,
        ready: Option<Ready>,
    ) -> Self {
        let cpu = path.session.cpu_of(cid);
        let this = Self {
            path,
            life,
            cid,
            cpu,
            tags,
            ready: SetOnce::new(),
            live: SetOnce::new(),
            invalidated: AtomicU64::new(NO_KEY),
            sends: AtomicU32::new(1),
            signal_mask,
            done,
            waiting: AtomicU32::new(0),
        };
        if let Some(ready) = ready {
            this.introduce(ready);
        }
        this
    }

    /// Gets the connection ready.
    pub(crate) fn introduce(&self, ready: Ready) {
        self.ready.populate(ready);
    }

    /// Counts one send and says whether it is to be signalled.
    #[inline(always)]
    pub(crate) fn next_send(&self) -> SendFlags {
        let sends = self.sends.fetch_add(1, Ordering::Relaxed);
        SendFlags::signaled(sends & self.signal_mask == 0)
    }

    /// Posts the receives that stay posted from now on; once, sleeps.
    pub(crate) fn post_receives(&self, qp: &Qp<Self>) -> Result {
        let Some(ready) = self.ready.as_ref() else {
            return Ok(());
        };
        let len = if ready.requests.granted.new_rkey {
            KEY_LEN
        } else {
            0
        };
        self.live.populate(Live {
            requests: ready.requests.clone(),
            receives: RecvRing::new(qp, ready.receives, ready.batch, len)?,
        });
        match self.live.as_ref() {
            Some(live) => live.receives.post(qp),
            None => Ok(()),
        }
    }

    /// Handles the completions of sends that there are, unless somebody else does. Any context.
    #[inline(always)]
    pub(crate) fn poll_send_cq(&self) {
        self.done.poll(u32::MAX);
    }

    /// As [`Self::poll_send_cq`]; if requests still wait after that, the path is woken when there
    /// is more.
    #[inline(always)]
    pub(crate) fn poll_send_cq_or_notify(&self) {
        self.poll_send_cq();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.request_notify();
        }
    }

    #[cold]
    fn request_notify(&self) {
        if self.done.request_notify() {
            // Some came meanwhile, or are in the hands of somebody who is not done.
            self.path.queue_poll_send_cqs();
        }
    }

    /// One more request waits for a completion.
    #[inline(always)]
    pub(crate) fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    #[inline(always)]
    pub(crate) fn waiting_is_over(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// What request `id` has to wait for besides its response has come: the server has all the data
    /// of a write, or our key for a read is invalid.
    #[inline(always)]
    fn signaled(&self, live: &Live, id: u16) {
        let entry = live.requests.entries.get(usize::from(id));
        if let Some(held) = entry.and_then(|entry| entry.signal()) {
            self.waiting_is_over();
            let result = held.result;
            self.end(&live.requests, held, id, result);
        }
    }

    /// Takes the key that the message right before this one invalidated.
    #[inline(always)]
    pub(crate) fn take_invalidated(&self) -> Option<u32> {
        let seen = self.invalidated.load(Ordering::Relaxed);
        self.invalidated.store(NO_KEY, Ordering::Relaxed);
        u32::try_from(seen).ok()
    }

    /// Something has come that is no response.
    #[cold]
    fn other(&self, qp: &Qp<Self>, imm: u32, written: bool) {
        match Imm::decode(imm) {
            Err(e) => self.fail(PathError::Immediate(e.0)),
            Ok(Imm::Heartbeat | Imm::HeartbeatAck) if self.cid != 0 || !written => {
                self.fail(PathError::StrayHeartbeat);
            }
            Ok(Imm::Heartbeat) => {
                if let Err(e) = self.send_imm(qp, Imm::HeartbeatAck) {
                    self.fail(PathError::Post(e));
                }
            }
            Ok(Imm::HeartbeatAck) => self.path.liveness.acknowledged(),
            Ok(Imm::Request { .. } | Imm::Response(_)) => self.fail(PathError::Immediate(imm)),
        }
    }

    /// A work request has failed.
    #[cold]
    fn failed(&self, wc: &WorkCompletion) {
        // What has failed first tells most, and it may be a send.
        self.poll_send_cq();
        match wc.status() {
            Ok(()) => {}
            // Most often not a reason but a consequence: of a work request that failed, of the
            // peer's hanging up, or of ours. But rxe gives a queue pair up without any other word
            // when it has to repeat a registration.
            Err(status) if status.is_flush() && !self.path.is_connected() => {}
            Err(status) => self.fail(PathError::Completion(status)),
        }
    }

    /// The info response has come.
    #[cold]
    fn informed(&self, wc: &WorkCompletion) {
        if wc.opcode() != Opcode::Receive || wc.imm().is_some() {
            return self.fail(PathError::Receive);
        }
        self.path.setup.informed(wc.byte_len());
    }

    /// Sends an empty write with an immediate.
    pub(crate) fn send_imm(&self, qp: &Qp<Self>, imm: Imm) -> Result {
        let mut space = WrBuffer::new();
        let mut batch = qp.batch::<1, 0>(&mut space);
        batch.empty_write_imm(
            self.tags.encode(Tagged::Send),
            imm.encode(),
            self.next_send(),
        );
        batch.post()
    }
}

/// Bytes of the message that brings a new key.
pub(crate) const KEY_LEN: u32 = size_of::<rtrs_core::proto::wire::RkeyResponse>() as u32;

impl QpHandler for ConnectionContext {
    #[inline(always)]
    fn received(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let context = qp.handler();
        let (true, Some(live)) = (wc.is_success(), context.live.as_ref()) else {
            return context.failed(wc);
        };
        context.path.stats.count_completion(context.cpu);
        context.path.liveness.heard();
        if let Some(imm) = wc.imm() {
            match Response::decode(imm) {
                Some(response) => context.answered(qp, live, tag, wc, response),
                None => {
                    let written = wc.opcode() == Opcode::ReceiveRdmaWithImm;
                    context.other(qp, imm, written);
                }
            }
        } else if let Some(key) = wc.invalidated_key() {
            context.invalidated.store(key.into(), Ordering::Relaxed);
        } else {
            return context.fail(PathError::Receive);
        }
        match live.receives.consumed(qp) {
            Ok(false) => {}
            // Nobody looks for the completions of reads.
            Ok(true) => context.poll_send_cq(),
            Err(e) => context.fail(PathError::Post(e)),
        }
    }

    #[inline(always)]
    fn completed(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let context = qp.handler();
        if !wc.is_success() {
            return context.failed(wc);
        }
        match (context.tags.decode(tag), context.live.as_ref()) {
            (Tagged::Write(id) | Tagged::Invalidate(id), Some(live)) => context.signaled(live, id),
            (Tagged::InfoResponse, _) => context.informed(wc),
            _ => {}
        }
    }

    #[cold]
    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        qp.handler().fail(PathError::Broken(why));
    }
}
