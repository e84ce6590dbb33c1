// SPDX-License-Identifier: GPL-2.0

//! The reads in flight of this node, for requests of other nodes that wait for their pages.

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
        pages::PageSet, //
        read_table::{
            Awaited,
            ReadEntry,
            ReadId, //
            ReadTable,
        },
    }, //
    identity::ContentId,
};

/// The maximum number of reads in the table; other nodes are told that pages of further ones are
/// not here.
const READINGS: usize = 512;

/// The reads in flight. Methods that take the table may be called in any context that may hold a
/// spinlock; only [`wait`](Self::wait) sleeps.
#[pin_data]
pub(crate) struct ReadsInFlight {
    #[pin]
    table: SpinLock<ReadTable<KVVec<Option<ReadEntry>>>>,
    /// The number of ends so far.
    ends: AtomicU32,
    is_over: AtomicBool,
    #[pin]
    ended: WaitQueue,
}

impl ReadsInFlight {
    /// Allocates the empty table. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut places = KVVec::with_capacity(READINGS, GFP_KERNEL)?;
        places.extend_with(READINGS, None, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(ReadTable::new(places), "ReadsInFlight::table"),
                ends: AtomicU32::new(0),
                is_over: AtomicBool::new(false),
                ended <- new_wait_queue!("ReadsInFlight::ended"),
            }),
            GFP_KERNEL,
        )
    }

    /// Notes that pages are going to be read, see [`ReadTable::begin`].
    pub(super) fn begin(&self, file: ContentId, chunk: u64, pages: PageSet) -> Option<ReadId> {
        self.table.lock().begin(file, chunk, pages, now_us())
    }

    /// Adds pages to a read.
    pub(super) fn extend(&self, read_id: ReadId, pages: PageSet) {
        self.table.lock().extend(read_id, pages);
    }

    /// Notes for which node a read waits, see [`ReadTable::waits`].
    pub(super) fn waits(&self, read_id: ReadId, node: Option<(NodeId, u8)>) {
        self.table.lock().waits(read_id, node);
    }

    /// Notes the end of a read, and wakes the threads that wait for one.
    pub(super) fn end(&self, read_id: ReadId) {
        self.table.lock().end(read_id, now_us());
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

    /// Returns the number of reads that have ended, modulo 2^32.
    pub(super) fn ends(&self) -> u32 {
        self.ends.load(Acquire)
    }

    /// Waits until the number of ends is not `ends` any more, at most `timeout_ms`. Sleeps.
    pub(super) fn wait(&self, ends: u32, timeout_ms: u32) {
        // Both ends are looked at by the caller.
        let _ = self
            .ended
            .wait_until_timeout_ms(|| self.ends() != ends, timeout_ms);
    }
}
