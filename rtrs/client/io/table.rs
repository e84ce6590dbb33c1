// SPDX-License-Identifier: GPL-2.0

//! The request table of one connected path.

use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel_ext::sync::{
    Handoff,
    Held, //
};
use rdma::{
    sg::Unmapper,
    Device,
    MessageBuffers,
    Mr,
    Pd, //
};
use rtrs_core::proto::{
    handshake::Accepted,
    info::RemoteChunk,
    read_buffers::ReadBuffers, //
};

use crate::client::io::{
    postponed::{
        self,
        Aside,
        Posted, //
    },
    read_buffers::ReadBlocks,
    request::InFlight,
    transfer::AnyTransfer, //
};

/// Bytes of each buffer for user message and head: a request's largest user message is RNBD's open
/// (264), a head is at most 24.
pub(crate) const MESSAGE_SIZE: u32 = 512;

/// Most pieces of one work request of a write that is sent by DMA addresses: the pages of 64 KiB.
/// More would make each entry of the send queues twice as long.
const PIECES_MAX: u32 = 16;
/// Work requests of such a write: its data may be in the pages of 128 KiB. A registration and the
/// write take as many, and the invalidation one more.
const PARTS_MAX: u32 = 2;
/// Most pieces of a write that is sent by DMA addresses.
pub(crate) const GATHERED_MAX: usize = (PIECES_MAX * PARTS_MAX) as usize;

/// Returns the most pieces of one work request that `device` takes, besides the message's.
pub(crate) fn pieces_max(device: &Device) -> u32 {
    let room = device.max_send_sge().saturating_sub(1).max(1);
    room.min(PIECES_MAX)
}

/// A value on a cache line of its own.
#[repr(align(64))]
struct OwnLine<T>(T);

/// The entry of a chunk id.
pub(crate) struct Entry {
    request: Handoff<InFlight>,
    pub(crate) posted: Posted,
}

impl Entry {
    fn new(mr: Mr) -> Self {
        Self {
            request: Handoff::new(InFlight::new(mr)),
            posted: Posted::new(),
        }
    }

    /// Looks for an answer that was put aside, as [`postponed::look`] says.
    pub(crate) fn look_aside(&self) -> Aside<'_, InFlight> {
        postponed::look(&self.request, &self.posted)
    }
}

impl Deref for Entry {
    type Target = Handoff<InFlight>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.request
    }
}

/// State of the requests of one connected path; shared by the path and its connections. The path
/// keeps it from one life to the next.
///
/// Each chunk id has one entry, one region and one message buffer. The context that holds the entry
/// may use all three; no context waits for an entry.
pub(crate) struct RequestTable {
    pub(crate) granted: Accepted,
    /// Most bytes of user message and head.
    pub(crate) message_max: u32,
    /// Most pieces of one work request of a write without a key. Written before the first request
    /// of a life.
    pieces_max: AtomicU32,
    pub(crate) entries: KVVec<Entry>,
    /// The memory of small reads.
    pub(crate) read_blocks: ReadBlocks,
    read_buffers: Option<ReadBuffers>,
    /// User message and head of each request.
    pub(crate) messages: MessageBuffers,
    /// The requests in flight that are counted. All CPUs write it.
    counted: OwnLine<AtomicU32>,
    /// The clock of `proto::invalidation`. It is read with each read that is sent, and changes once
    /// in 128 registrations of a region.
    clock: AtomicU64,
    pub(crate) pd: Arc<Pd>,
}

impl RequestTable {
    /// Allocates everything for the chunks that the server granted; sleeps.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        granted: Accepted,
        pages_max: u32,
        read_buffers: Option<ReadBuffers>,
    ) -> Result<Arc<Self>> {
        let depth = granted.geometry.queue_depth();
        let mut entries = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
        for _ in 0..depth {
            let mr = Mr::new(pd, pages_max)?;
            entries.push(Entry::new(mr), GFP_KERNEL)?;
        }
        let read_blocks = match read_buffers {
            Some(layout) => ReadBlocks::new(pd, layout, depth)?,
            None => ReadBlocks::none(),
        };
        place(&mut entries, &read_blocks, read_buffers);
        Ok(Arc::new(
            Self {
                granted,
                message_max: granted.max_hdr_size.min(MESSAGE_SIZE),
                pieces_max: AtomicU32::new(pieces_max(pd.device())),
                entries,
                read_blocks,
                read_buffers,
                messages: MessageBuffers::new(pd, depth.into(), MESSAGE_SIZE)?,
                counted: OwnLine(AtomicU32::new(0)),
                clock: AtomicU64::new(0),
                pd: pd.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Takes over what the server grants for another life; returns `false` if the number of
    /// requests differs.
    pub(crate) fn renew(&mut self, granted: Accepted) -> bool {
        let is_fit = usize::from(granted.geometry.queue_depth()) == self.entries.len();
        self.message_max = granted.max_hdr_size.min(MESSAGE_SIZE);
        *self.pieces_max.get_mut() = pieces_max(self.pd.device());
        self.granted = granted;
        is_fit
    }

    /// Replaces the regions whose keys are in an unknown state: those of requests that were in
    /// flight when their life ended. No queue pair is left, so a replacement reuses what the old
    /// region frees. Sleeps.
    ///
    /// Until then such a key may let the server reach memory that was given back.
    pub(crate) fn repair(&mut self) -> Result {
        for entry in &mut self.entries {
            let entry = entry.request.get_mut();
            if core::mem::take(&mut entry.is_in_doubt) {
                entry.stale = None;
                entry.mr.renew()?;
            }
        }
        match self.read_blocks.repair(&self.pd) {
            Ok(true) => place(&mut self.entries, &self.read_blocks, self.read_buffers),
            Ok(false) => {}
            // Reads use keys in the next life: what the path has is worth more than the copies.
            Err(_) => {
                for entry in &mut self.entries {
                    entry.request.get_mut().buffer = None;
                }
            }
        }
        Ok(())
    }

    /// Stores the addresses of the server's chunks, before any IO.
    pub(crate) fn locate(&self, remote: impl Iterator<Item = RemoteChunk>) {
        for (entry, chunk) in self.entries.iter().zip(remote) {
            // No other context uses the table yet.
            if let Some(mut held) = entry.acquire() {
                held.chunk = chunk;
            }
        }
    }

    /// Returns the most pieces of one work request of a write without a key.
    #[inline(always)]
    pub(crate) fn pieces_max(&self) -> u32 {
        self.pieces_max.load(Ordering::Relaxed)
    }

    /// Lets writes have no more pieces than those of a queue pair of this life, before any IO.
    pub(crate) fn limit_pieces(&self, pieces: u32) {
        self.pieces_max.fetch_min(pieces, Ordering::Relaxed);
    }

    /// Returns the most pieces of a write without a key.
    #[inline(always)]
    pub(crate) fn gathered_max(&self) -> u32 {
        // At most GATHERED_MAX.
        self.pieces_max().wrapping_mul(PARTS_MAX)
    }

    /// Returns the time of the clock of `proto::invalidation`.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }

    /// Advances that clock and returns its new time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Returns the number of requests in flight, by a look at each entry: not for the IO path.
    pub(crate) fn unanswered(&self) -> u32 {
        let armed = self.entries.iter().filter(|entry| entry.is_armed());
        // There are at most 65535 entries.
        armed.fold(0, |count, _| count.wrapping_add(1))
    }

    /// Returns whether requests are in flight, as [`Self::unanswered`] does.
    pub(crate) fn is_any_unanswered(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_armed())
    }

    /// Returns the requests in flight that were counted.
    #[inline(always)]
    pub(crate) fn counted(&self) -> u32 {
        self.counted.0.load(Ordering::Relaxed)
    }

    /// Counts a request that is sent.
    #[inline(always)]
    pub(crate) fn count(&self) {
        self.counted.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the transfer out of an entry whose request ends.
    #[inline(always)]
    pub(crate) fn take_transfer(&self, held: &mut InFlight) -> Option<AnyTransfer> {
        let transfer = held.transfer.take()?;
        if held.sent.attempt.is_counted {
            self.counted.0.fetch_sub(1, Ordering::Relaxed);
        }
        Some(transfer)
    }

    /// Ends a request: unmaps its memory, releases its entry and gives the memory back.
    ///
    /// The caller ensures that the memory cannot be reached over the wire any more.
    #[inline]
    pub(crate) fn end(&self, mut held: Held<'_, InFlight>, result: Result) {
        let Some(transfer) = self.take_transfer(&mut held) else {
            return;
        };
        let mapped = held.sent.data.is_mapped().then_some(self);
        // The entry first: the upper layer may use the tag again at once.
        drop(held);
        transfer.done(mapped, result);
    }

    /// Ends a write that has succeeded, as [`Self::end`] does. Its data is mapped.
    #[inline(always)]
    pub(crate) fn end_written(&self, mut held: Held<'_, InFlight>) {
        if let Some(transfer) = self.take_transfer(&mut held) {
            drop(held);
            transfer.succeeded(self);
        }
    }

    /// Ends a read that has succeeded: copies the data out of its buffer, releases its entry and
    /// gives the memory back.
    #[inline(always)]
    pub(crate) fn end_copied(&self, mut held: Held<'_, InFlight>) {
        if let Some(transfer) = self.take_transfer(&mut held) {
            transfer.copied(held);
        }
    }

    /// Ends a read as [`Self::end`] does; its `tail` has come with the response.
    pub(crate) fn end_with_tail(&self, mut held: Held<'_, InFlight>, tail: &[u8]) {
        let Some(transfer) = self.take_transfer(&mut held) else {
            return;
        };
        drop(held);
        transfer.done_with_tail(self, tail);
    }
}

/// Gives each request its buffer.
fn place(entries: &mut KVVec<Entry>, blocks: &ReadBlocks, layout: Option<ReadBuffers>) {
    let Some(layout) = layout else {
        return;
    };
    for (entry, buffer) in entries.iter_mut().zip(blocks.buffers(layout)) {
        entry.request.get_mut().buffer = Some(buffer);
    }
}

// SAFETY: A mapped list is in its request's entry from before the post until it is unmapped. The
// context that holds the entry is alone with it and with its region, which is registered only
// there, for the list that was mapped last.
//
// A region maps a list in `map_data` only, for an entry that was free. Its last request has then
// ended in one of the ways below, each of which leaves the region without a valid key, or, after a
// write, with a key that no work request names, for reading by the device. If the work requests of
// the last request were dropped, they were never posted. An answer that comes before they are
// posted is a lie. It ends no write, which waits for its send as well. It ends no read before our
// invalidation, which is posted behind them (`postponed`); the peer's invalidation of a key that is
// not registered yet fails, as the specification of InfiniBand says of keys that are invalid.
//
// The table unmaps a list
//
// - before the post, when the work requests are dropped;
// - in `end` and `end_with_tail`, for a read, when a completion has shown that the key is invalid:
//   the peer's invalidation, which `proto::invalidation` has shown to be one of this registration,
//   or ours;
// - in `end` and `end_written`, for a write, when the response has come and the send has completed,
//   which is the last work request that names its segments or its key; `end_written` is called for
//   those whose data is `Sges` or `FastReg` only, and so is mapped. The tag has no other send: the
//   entry was held. The key is for local access, and the next registration invalidates it first;
// - with a `Drained` of the domain, in `take_unanswered`, which marks a region that was in use as
//   in doubt: `repair` renews it before the path connects again.
unsafe impl Unmapper for RequestTable {
    #[inline(always)]
    fn device(&self) -> &Device {
        self.pd.device()
    }
}
