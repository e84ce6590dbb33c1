// SPDX-License-Identifier: GPL-2.0

//! The completions of one connection's queue pair.

use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel_ext::sync::SetOnce;
use rdma::{
    Cq,
    Opcode,
    Qp,
    QpHandler,
    RecvRing,
    Reliable,
    SendFlags,
    Success,
    WorkCompletion, //
    WrBuffer,
};
use rtrs_core::proto::{
    imm::{
        Imm,
        Response, //
    },
    signal::ADMIN_RECEIVES,
    wire::{
        RkeyResponse,
        TAIL_LEN_MAX, //
    },
};

use crate::client::{
    io::{
        invalidations::Invalidations,
        table::RequestTable, //
    },
    path::{
        error::PathError,
        Path, //
    }, //
};

/// Chunk ids that the admin connection may have in flight: `proto::permit` keeps at most 8.
const ADMIN_IDS: u32 = 8;

/// Receives that are posted at a time, when as many were consumed; a power of two.
pub(crate) const RECEIVE_BATCH: u32 = 16;

/// The tags of a queue pair's work requests: first those of the receives, then for each chunk id
/// that of the invalidation and that of the write that its request waits for, then the rest.
#[derive(Clone, Copy)]
pub(crate) struct Tags {
    /// The first tag of an invalidation, and the number of receives.
    invalidate: u32,
    /// The first tag of a write.
    write: u32,
    /// The first tag of the rest.
    rest: u32,
}

/// The meaning of a tag that is not a receive's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// The invalidation of the key of this chunk id's request.
    Invalidate(u16),
    /// The data of this chunk id's request.
    Write(u16),
    /// A send whose completion no request waits for.
    Send,
    /// The info request.
    InfoRequest,
    /// The receive of the info response.
    InfoResponse,
    /// The last registration of some blocks of read buffers.
    Registration,
}

impl Tags {
    /// Tags of the admin connection.
    pub(crate) const ADMIN: Self = Self::new(ADMIN_RECEIVES, ADMIN_IDS);

    /// Tags of an IO connection. A read is answered with up to two messages; the other receives are
    /// those that were consumed and wait for their batch.
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

    /// Returns the number of tags.
    pub(crate) const fn count(self) -> u32 {
        self.rest.wrapping_add(4)
    }

    /// Returns the number of receives, which have the first tags.
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
            Tagged::Registration => self.rest.wrapping_add(3),
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
                2 => Tagged::InfoResponse,
                _ => Tagged::Registration,
            }
        }
    }
}

/// The request table and the counts with which a connection posts its receives.
pub(crate) struct Ready {
    requests: Arc<RequestTable>,
    /// Receives that are kept posted, and how many of them are posted at a time.
    receives: u32,
    batch: u32,
}

impl Ready {
    /// Returns the value for a connection with these tags, whose receive queue has `room` entries.
    pub(crate) fn new(requests: &Arc<RequestTable>, tags: Tags, room: u32) -> Result<Self> {
        // A device may have a shorter queue than the protocol asks for.
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

/// The state of a connection that carries requests.
pub(crate) struct Live {
    pub(crate) requests: Arc<RequestTable>,
    /// The receives, with memory for a new key and a tail if responses bring them.
    pub(crate) receives: RecvRing,
}

/// The context of the completions of one connection.
pub(crate) struct ConnectionContext {
    pub(crate) path: Arc<Path>,
    /// The life of the path that the connection belongs to. An error of this connection does not
    /// fail a later life.
    pub(crate) life: u16,
    pub(crate) cid: u16,
    /// The CPU that the connection serves.
    cpu: u32,
    pub(crate) tags: Tags,
    /// Set from the start for an IO connection; for the admin connection, when the requests are
    /// allocated.
    ready: SetOnce<Ready>,
    /// Set when the server has answered the info request.
    live: SetOnce<Live>,
    /// The keys that the server has invalidated by messages.
    pub(crate) invalidations: Invalidations,
    /// Sends so far, from 1.
    sends: AtomicU32,
    /// A send whose number has none of these bits is signaled.
    signal_mask: u32,
    /// The completions of sends, polled without an interrupt. That of a write is most often there
    /// when its response comes, which follows the server's acknowledgement, so it is polled then.
    /// An interrupt for each write cost more than all other work for it.
    done: Arc<Cq>,
    /// Requests whose response has come and which wait for such a completion.
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
            invalidations: Invalidations::new(),
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

    /// Provides what [`Self::post_receives`] needs.
    pub(crate) fn introduce(&self, ready: Ready) {
        // No receive is posted yet.
        self.invalidations.show(ready.requests.now());
        self.ready.populate(ready);
    }

    /// Counts one send and returns whether it is signaled.
    #[inline(always)]
    pub(crate) fn next_send(&self) -> SendFlags {
        let sends = self.sends.fetch_add(1, Ordering::Relaxed);
        SendFlags::signaled(sends & self.signal_mask == 0)
    }

    /// Posts the receives, which stay posted from now on; called once, sleeps.
    pub(crate) fn post_receives(&self, qp: &Qp<Self>) -> Result {
        let Some(ready) = self.ready.as_ref() else {
            return Ok(());
        };
        let len = if ready.requests.granted.new_rkey {
            ANSWER_LEN_MAX
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

    /// Handles the completions of sends, unless another context does so. Any context.
    #[inline(always)]
    pub(crate) fn poll_send_cq(&self) {
        self.done.poll(u32::MAX);
    }

    /// Handles the completions of sends as [`Self::poll_send_cq`] does; if requests still wait
    /// after that, the path is notified of the next completion.
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
            // Some completed meanwhile, or another context is handling them.
            self.path.queue_poll_send_cqs();
        }
    }

    /// Counts a request that waits for a completion.
    #[inline(always)]
    pub(crate) fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that does not wait any more.
    #[inline(always)]
    pub(crate) fn waiting_is_over(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Handles the completion that request `id` needs besides its response: the server has all data
    /// of a write, or the key of a read is invalid.
    #[inline(always)]
    fn signaled(&self, id: u16) {
        let Some(live) = self.live.as_ref() else {
            return;
        };
        let entry = live.requests.entries.get(usize::from(id));
        if let Some(held) = entry.and_then(|entry| entry.signal()) {
            self.waiting_is_over();
            let result = held.result;
            self.end(&live.requests, held, id, result);
        }
    }

    /// Handles a message that does not say that a request has succeeded, or not alone.
    #[inline(never)]
    fn unusual(&self, qp: &Qp<Self>, live: &Live, n: u32, wc: &Success, imm: u32) {
        let written = wc.opcode() == Opcode::ReceiveRdmaWithImm;
        match Imm::decode(imm) {
            Ok(Imm::Response(response)) => {
                let outcome = (response.errno, response.invalidated);
                // There is an entry for each chunk of the session.
                match live.requests.entries.get(response.msg_id as usize) {
                    // CAST: as above.
                    Some(entry) => {
                        self.answered(qp, live, n, wc, (entry, response.msg_id as u16), outcome)
                    }
                    None => self.fail(PathError::MessageId(response.msg_id)),
                }
            }
            Err(e) => self.fail(PathError::Immediate(e.0)),
            Ok(Imm::Heartbeat | Imm::HeartbeatAck) if self.cid != 0 || !written => {
                self.fail(PathError::StrayHeartbeat);
            }
            Ok(Imm::Heartbeat) => {
                if let Err(e) = self.send_imm(qp, Imm::HeartbeatAck) {
                    self.fail(PathError::Post(e));
                }
            }
            Ok(Imm::HeartbeatAck) => {
                self.path.liveness.acknowledged();
                self.path.session.refresh_routes();
            }
            Ok(Imm::Fenced(number)) => {
                let is_own = self.cid == 0 && written;
                let life = live.requests.granted.life.filter(|_| is_own);
                if !self.path.fenced(life, number) {
                    self.fail(PathError::Immediate(imm));
                }
            }
            Ok(Imm::Request { .. } | Imm::Fence(_)) => {
                self.fail(PathError::Immediate(imm));
            }
        }
    }

    /// Handles a work request that failed.
    #[cold]
    fn failed(&self, wc: &WorkCompletion) {
        // The first failure says most, and it may be that of a send.
        self.poll_send_cq();
        match wc.status() {
            Ok(_) => {}
            // Most often a consequence: of a work request that failed, or of a disconnect by the
            // peer or by us. But rxe flushes a queue pair without another error when it has to
            // repeat a registration.
            Err(status) if status.is_flush() && !self.path.is_connected() => {}
            Err(status) => self.fail(PathError::Completion(status)),
        }
    }

    /// Handles a receive that failed. Where the peer's write with an immediate of one packet is
    /// refused, the device says so here, and there is no event: the key of a read buffer may be
    /// invalid.
    #[cold]
    fn receive_failed(&self, wc: &WorkCompletion) {
        let is_refusal = wc.status().is_err_and(|status| !status.is_flush());
        if let (true, Some(live)) = (is_refusal, self.live.as_ref()) {
            live.requests.read_blocks.doubt();
        }
        self.failed(wc);
    }

    /// Handles the info response.
    #[cold]
    fn informed(&self, wc: &Success) {
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
pub(crate) const KEY_LEN: u32 = size_of::<RkeyResponse>() as u32;

/// The most bytes of such a message with a tail.
pub(crate) const ANSWER_LEN_MAX: u32 = KEY_LEN + TAIL_LEN_MAX;

impl QpHandler for ConnectionContext {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    #[inline(always)]
    fn received(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let context = qp.handler();
        let Some(success) = wc.success() else {
            return context.receive_failed(wc);
        };
        let Some(live) = context.live.as_ref() else {
            return context.failed(wc);
        };
        context.path.stats.count_completion(context.cpu);
        context.path.liveness.heard();
        if let Some(imm) = success.imm() {
            let id = Response::succeeded(imm);
            match live.requests.entries.get(id as usize) {
                // CAST: there are at most 65535 entries.
                Some(entry) => {
                    context.answered(qp, live, tag, success, (entry, id as u16), (0, false))
                }
                None => context.unusual(qp, live, tag, success, imm),
            }
        } else if let Some(key) = success.invalidated_key() {
            context.invalidations.came(key);
        } else {
            return context.fail(PathError::Receive);
        }
        match live.receives.consumed(qp) {
            Ok(false) => {}
            Ok(true) => {
                let batches = live.receives.batches();
                context.invalidations.posted(live.requests.now(), batches);
                // No response of a write polls for the completions of reads.
                context.poll_send_cq();
            }
            Err(e) => context.fail(PathError::Post(e)),
        }
    }

    #[inline(always)]
    fn completed(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let context = qp.handler();
        let Some(success) = wc.success() else {
            return context.failed(wc);
        };
        match context.tags.decode(tag) {
            // Two arms, as the compiler else looks once more which of both it is.
            Tagged::Write(id) => context.signaled(id),
            Tagged::Invalidate(id) => context.signaled(id),
            Tagged::InfoResponse => context.informed(success),
            Tagged::Registration => context.path.setup.registered(),
            Tagged::Send | Tagged::InfoRequest => {}
        }
    }

    #[cold]
    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        let context = qp.handler();
        if let Some(live) = context.live.as_ref() {
            live.requests.read_blocks.doubt();
        }
        context.fail(PathError::Broken(why));
    }
}
