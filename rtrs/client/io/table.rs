// SPDX-License-Identifier: GPL-2.0

//! The requests of one connected path, and what their completions need.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel_ext::sync::{
    Handoff,
    Held, //
};
use rdma::{
    Device,
    MessageBuffers,
    Mr,
    Pd, //
};
use rtrs_core::proto::{
    handshake::Accepted,
    info::RemoteChunk, //
};

use crate::client::io::request::InFlight;

/// Bytes of each slot for user message and head: a request's largest user message is RNBD's open
/// (264), a head is at most 24.
pub(crate) const MESSAGE_SIZE: u32 = 512;

/// Most pieces of one work request of a write that goes piece by piece: the pages of 64 KiB. More
/// would make each entry of the send queues twice as long.
const PIECES_MAX: u32 = 16;
/// Work requests of such a write: its data may be in the pages of 128 KiB. A registration and the
/// write take as many, and the invalidation one more.
const PARTS_MAX: u32 = 2;
/// Most pieces of a write that goes piece by piece.
pub(crate) const GATHERED_MAX: usize = (PIECES_MAX * PARTS_MAX) as usize;

/// As many pieces of one work request as `device` takes, with one more segment for the message.
pub(crate) fn pieces_max(device: &Device) -> u32 {
    let room = device.max_send_sge().saturating_sub(1).max(1);
    room.min(PIECES_MAX)
}

/// State of the requests of one connected path; shared by the path and its connections. The path
/// keeps it from one life to the next.
///
/// For each chunk id there is one slot, one region and one place for its message. Whoever holds the
/// slot may use all three; nobody ever waits for a slot.
pub(crate) struct RequestTable {
    pub(crate) granted: Accepted,
    /// Most bytes of user message and head.
    pub(crate) message_max: u32,
    /// Most pieces of one work request of a write that goes without a key.
    pub(crate) pieces_max: u32,
    pub(crate) entries: KVVec<Handoff<InFlight>>,
    /// User message and head of each request.
    pub(crate) messages: MessageBuffers,
    /// Requests in flight.
    pub(crate) inflight: AtomicU32,
    pub(crate) pd: Arc<Pd>,
}

impl RequestTable {
    /// Allocates everything for the chunks that the server granted; sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, granted: Accepted, pages_max: u32) -> Result<Arc<Self>> {
        let depth = granted.geometry.queue_depth();
        let mut entries = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
        for _ in 0..depth {
            let mr = Mr::new(pd, pages_max, pd.device().sg_gaps())?;
            entries.push(Handoff::new(InFlight::new(mr)), GFP_KERNEL)?;
        }
        Ok(Arc::new(
            Self {
                granted,
                message_max: granted.max_hdr_size.min(MESSAGE_SIZE),
                pieces_max: pieces_max(pd.device()),
                entries,
                messages: MessageBuffers::new(pd, depth.into(), MESSAGE_SIZE)?,
                inflight: AtomicU32::new(0),
                pd: pd.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Takes what the server grants to another life; `false` if this does not fit: it is for
    /// another number of requests.
    pub(crate) fn renew(&mut self, granted: Accepted) -> bool {
        let is_fit = usize::from(granted.geometry.queue_depth()) == self.entries.len();
        self.message_max = granted.max_hdr_size.min(MESSAGE_SIZE);
        self.granted = granted;
        is_fit
    }

    /// Makes regions anew of which it is not known whether their keys are good: those of requests
    /// that were under way when their life ended. No queue pair is left, so what one gives up the
    /// next one takes. Sleeps.
    ///
    /// Until then such a key may let the server reach memory that was given back.
    pub(crate) fn repair(&mut self) -> Result {
        for entry in &mut self.entries {
            let entry = entry.get_mut();
            if core::mem::take(&mut entry.is_in_doubt) {
                entry.stale = None;
                entry.mr.renew()?;
            }
        }
        Ok(())
    }

    /// Learns where the server's chunks are, before any IO.
    pub(crate) fn locate(&self, remote: impl Iterator<Item = RemoteChunk>) {
        for (entry, chunk) in self.entries.iter().zip(remote) {
            // Nobody else is here yet.
            if let Some(mut held) = entry.acquire() {
                held.chunk = chunk;
            }
        }
    }

    /// Most pieces of a write that goes without a key.
    #[inline(always)]
    pub(crate) fn gathered_max(&self) -> u32 {
        // At most GATHERED_MAX.
        self.pieces_max.wrapping_mul(PARTS_MAX)
    }

    #[inline(always)]
    pub(crate) fn device(&self) -> &Device {
        self.pd.device()
    }

    /// Ends a request: takes its memory off the device, frees its slot and gives the memory back.
    ///
    /// The caller has made sure that nobody reaches the memory over the wire any more.
    #[inline]
    pub(crate) fn end(&self, mut held: Held<'_, InFlight>, result: Result) {
        let Some(transfer) = held.transfer.take() else {
            return;
        };
        let mapped = held.data.direction().map(|d| (self.device(), d));
        // The slot first: the one who is told may use its tag again at once.
        drop(held);
        self.inflight.fetch_sub(1, Ordering::Relaxed);
        transfer.done(mapped, result);
    }
}
