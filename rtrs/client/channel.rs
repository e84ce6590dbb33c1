// SPDX-License-Identifier: GPL-2.0

//! One connection's queue pair: its completions.

use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};

use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};
use rdma::{
    MessageSlots,
    Opcode,
    Qp,
    QpHandler,
    SendFlags,
    Space,
    WorkCompletion, //
};
use rtrs_core::proto::{
    imm::Imm,
    SERVICE_QUEUE_DEPTH, //
};

use crate::{
    exchange::Exchange,
    fault::Fault,
    path::Path, //
};

/// Chunk ids that the admin connection may have in flight: `proto::permit` keeps at most 8.
const ADMIN_IDS: u32 = 8;

/// Says that [`Channel::invalidated`] holds a key.
const KEY_SEEN: u64 = 1 << 32;

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

/// What a tag stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// The receive with this number.
    Receive(u32),
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
    pub(crate) const ADMIN: Self = Self::new(SERVICE_QUEUE_DEPTH as u32 * 2, ADMIN_IDS);

    /// Tags of an IO connection. A read is answered with up to two messages.
    pub(crate) const fn io(queue_depth: u16) -> Self {
        Self::new(queue_depth as u32 * 2, queue_depth as u32)
    }

    const fn new(receives: u32, ids: u32) -> Self {
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

    /// Returns how many receives are kept posted.
    pub(crate) const fn receives(self) -> u32 {
        self.invalidate
    }

    #[inline(always)]
    pub(crate) const fn encode(self, tagged: Tagged) -> u32 {
        match tagged {
            Tagged::Receive(n) => n,
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
        if tag < self.invalidate {
            Tagged::Receive(tag)
        } else if tag < self.write {
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

/// What a connection needs to carry requests.
pub(crate) struct Ready {
    pub(crate) exchange: Arc<Exchange>,
    /// Room for each receive, where responses bring a new key.
    receives: Option<MessageSlots>,
    /// How many receives are kept posted.
    count: u32,
}

impl Ready {
    /// Gets a connection with these tags ready, whose receive queue has `room` entries; sleeps.
    pub(crate) fn new(exchange: &Arc<Exchange>, tags: Tags, room: u32) -> Result<Self> {
        // Devices may have less room than the protocol asks for.
        let count = tags.receives().min(room);
        let receives = if exchange.granted.new_rkey {
            Some(MessageSlots::new(&exchange.pd, count, KEY_LEN)?)
        } else {
            None
        };
        Ok(Self {
            exchange: exchange.clone(),
            receives,
            count,
        })
    }

    /// Posts receive `n` (again).
    #[inline]
    fn repost(&self, qp: &Qp<Channel>, n: u32) -> Result {
        match &self.receives {
            Some(slots) => qp.post_receive(n, Some(slots.segment(n, 0, KEY_LEN))),
            None => qp.post_receive(n, None),
        }
    }

    /// The message of receive `n`.
    #[inline(always)]
    fn message(&self, n: u32) -> Option<[u8; KEY_LEN as usize]> {
        let mut bytes = [0; KEY_LEN as usize];
        self.receives.as_ref()?.read(n, 0, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// What the completions of one connection need.
pub(crate) struct Channel {
    pub(crate) path: Arc<Path>,
    pub(crate) cid: u16,
    /// The CPU that the connection is meant for.
    cpu: u32,
    pub(crate) tags: Tags,
    /// An IO connection is ready from the start.
    ready: Option<Ready>,
    /// The admin connection is there before the requests are.
    ready_late: SetOnce<Ready>,
    /// The key that the server said last that it invalidated, and [`KEY_SEEN`]. Only completions
    /// use it, and those of one queue pair come one after the other.
    invalidated: AtomicU64,
    /// Sends so far, from 1.
    sends: AtomicU32,
}

impl Channel {
    pub(crate) fn new(
        path: Arc<Path>,
        cid: u16,
        cpu: u32,
        tags: Tags,
        ready: Option<Ready>,
    ) -> Self {
        Self {
            path,
            cid,
            cpu,
            tags,
            ready,
            ready_late: SetOnce::new(),
            invalidated: AtomicU64::new(0),
            sends: AtomicU32::new(1),
        }
    }

    /// What carrying requests takes; `None` only on the admin connection during the set-up.
    #[inline(always)]
    fn ready(&self) -> Option<&Ready> {
        match &self.ready {
            Some(ready) => Some(ready),
            None => self.ready_late.as_ref(),
        }
    }

    /// Gets the admin connection ready.
    pub(crate) fn introduce(&self, ready: Ready) {
        self.ready_late.populate(ready);
    }

    /// Counts one send and says whether it is to be signalled.
    #[inline]
    pub(crate) fn next_send(&self, interval: u32) -> SendFlags {
        let sends = self.sends.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        SendFlags::signaled(sends.checked_rem(interval) == Some(0))
    }

    /// Posts the receives that stay posted from now on.
    pub(crate) fn post_receives(&self, qp: &Qp<Self>) -> Result {
        if let Some(ready) = self.ready() {
            for n in 0..ready.count {
                ready.repost(qp, n)?;
            }
        }
        Ok(())
    }

    /// Takes the key that the message right before this one invalidated.
    #[inline]
    pub(crate) fn take_invalidated(&self) -> Option<u32> {
        let seen = self.invalidated.load(Ordering::Relaxed);
        self.invalidated.store(0, Ordering::Relaxed);
        // CAST: the low half is the key.
        (seen & KEY_SEEN != 0).then_some(seen as u32)
    }

    /// A message has come in receive `n`.
    #[inline]
    fn received(
        &self,
        qp: &Qp<Self>,
        ready: &Ready,
        n: u32,
        wc: &WorkCompletion,
    ) -> Result<(), Fault> {
        let exchange = &*ready.exchange;
        self.path.pulse.heard();
        match (wc.imm(), wc.invalidated_key()) {
            (Some(imm), None) => {
                let written = wc.opcode() == Opcode::ReceiveRdmaWithImm;
                match Imm::decode(imm).map_err(|e| Fault::Immediate(e.0))? {
                    Imm::Response(response) if written => {
                        self.answered(qp, exchange, response, None)?;
                    }
                    Imm::Response(response) => {
                        let bytes = ready.message(n).ok_or(Fault::Receive)?;
                        let len = wc.byte_len().min(KEY_LEN) as usize;
                        let message = bytes.get(..len).unwrap_or(&[]);
                        self.answered(qp, exchange, response, Some(message))?;
                    }
                    Imm::Heartbeat | Imm::HeartbeatAck if self.cid != 0 || !written => {
                        return Err(Fault::StrayHeartbeat);
                    }
                    Imm::Heartbeat => self.acknowledge_heartbeat(qp, exchange)?,
                    Imm::HeartbeatAck => self.path.pulse.acknowledged(),
                    Imm::Request { .. } => return Err(Fault::Immediate(imm)),
                }
            }
            (None, Some(key)) => {
                self.invalidated
                    .store(KEY_SEEN | u64::from(key), Ordering::Relaxed);
            }
            _ => return Err(Fault::Receive),
        }
        ready.repost(qp, n).map_err(Fault::Post)
    }

    /// Sends an empty write with an immediate.
    pub(crate) fn send_imm(&self, qp: &Qp<Self>, exchange: &Exchange, imm: Imm) -> Result {
        let mut space = Space::new();
        let mut batch = qp.batch::<1, 0>(&mut space);
        batch.empty_write_imm(
            self.tags.encode(Tagged::Send),
            imm.encode(),
            self.next_send(exchange.signal_interval),
        );
        batch.post()
    }

    #[cold]
    fn acknowledge_heartbeat(&self, qp: &Qp<Self>, exchange: &Exchange) -> Result<(), Fault> {
        self.send_imm(qp, exchange, Imm::HeartbeatAck)
            .map_err(Fault::Post)
    }

    #[inline]
    fn completed_well(
        &self,
        qp: &Qp<Self>,
        tagged: Tagged,
        wc: &WorkCompletion,
    ) -> Result<(), Fault> {
        match (tagged, self.ready()) {
            (Tagged::Receive(n), Some(ready)) => {
                self.path.stats.count_completion(self.cpu);
                self.received(qp, ready, n, wc)
            }
            (Tagged::Invalidate(id), Some(ready)) => {
                self.key_invalidated(&ready.exchange, id);
                Ok(())
            }
            (Tagged::Write(id), Some(ready)) => self.written(qp, &ready.exchange, id),
            (Tagged::InfoResponse, _) => {
                if wc.opcode() != Opcode::Receive || wc.imm().is_some() {
                    return Err(Fault::Receive);
                }
                self.path.progress.informed(wc.byte_len());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Bytes of the message that brings a new key.
pub(crate) const KEY_LEN: u32 = size_of::<rtrs_core::proto::wire::RkeyResponse>() as u32;

impl QpHandler for Channel {
    #[inline]
    fn completed(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let channel = qp.handler();
        let done = match wc.status() {
            Ok(()) => channel.completed_well(qp, channel.tags.decode(tag), wc),
            // Most often not a reason but a consequence: of a work request that failed, of the
            // peer's hanging up, or of ours. But rxe gives a queue pair up without any other word
            // when it has to repeat a registration.
            Err(status) if status.is_flush() && !channel.path.is_connected() => Ok(()),
            Err(status) => Err(Fault::Completion(status)),
        };
        if let Err(fault) = done {
            Path::fail(&channel.path, fault);
        }
    }
}
