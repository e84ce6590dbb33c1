// SPDX-License-Identifier: GPL-2.0

//! What this node is reading, for those who ask for it.

use kernel::{
    alloc::KVVec,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
};
use kernel_ext::{
    new_wait_queue,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            Ordering::{
                Acquire,
                Release, //
            }, //
        },
        WaitQueue, //
    },
};

use super::now_us;
use crate::proto::{
    cache::{
        address::NodeId,
        fetching::{
            Awaited,
            Fetching,
            Reading,
            Ticket, //
        },
        pages::PageSet, //
    }, //
    identity::ContentId,
};

/// The parts of chunks that are noted at a time; of the rest others are told that it is not here.
const READINGS: usize = 512;

/// The reads that are under way.
#[pin_data]
pub(crate) struct Fetches {
    #[pin]
    table: SpinLock<Fetching<KVVec<Option<Reading>>>>,
    /// How often something has ended.
    ends: AtomicU32,
    is_over: AtomicBool,
    #[pin]
    ended: WaitQueue,
}

impl Fetches {
    /// Allocates the empty table. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut places = KVVec::with_capacity(READINGS, GFP_KERNEL)?;
        places.extend_with(READINGS, None, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(Fetching::new(places), "Fetches::table"),
                ends: AtomicU32::new(0),
                is_over: AtomicBool::new(false),
                ended <- new_wait_queue!("Fetches::ended"),
            }),
            GFP_KERNEL,
        )
    }

    /// Notes that pages are going to be read, see [`Fetching::begin`].
    pub(super) fn begin(&self, file: ContentId, chunk: u64, pages: PageSet) -> Option<Ticket> {
        self.table.lock().begin(file, chunk, pages, now_us())
    }

    /// Adds pages to a read.
    pub(super) fn extend(&self, ticket: Ticket, pages: PageSet) {
        self.table.lock().extend(ticket, pages);
    }

    /// Notes for which node a read waits, see [`Fetching::waits`].
    pub(super) fn waits(&self, ticket: Ticket, node: Option<(NodeId, u8)>) {
        self.table.lock().waits(ticket, node);
    }

    /// Notes the end of a read, and has those look that wait for one.
    pub(super) fn end(&self, ticket: Ticket) {
        self.table.lock().end(ticket, now_us());
        self.wake();
    }

    fn wake(&self) {
        self.ends.fetch_add(1, Release);
        self.ended.wake_all();
    }

    /// Returns what a request of another node may wait for.
    pub(super) fn awaited(&self, file: ContentId, chunk: u64, asker: NodeId) -> Awaited {
        self.table.lock().awaited(file, chunk, asker, now_us())
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        self.is_over.store(true, Release);
        self.wake();
    }

    /// Returns whether all waits have ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Acquire)
    }

    /// Returns how often a read has ended.
    pub(super) fn ends(&self) -> u32 {
        self.ends.load(Acquire)
    }

    /// Waits until one has ended since there were so many, or the time is over. Sleeps.
    pub(super) fn wait(&self, ends: u32, timeout_ms: u32) {
        // Both ends are looked at by the caller.
        let _ = self
            .ended
            .wait_until_timeout_ms(|| self.ends() != ends, timeout_ms);
    }
}
