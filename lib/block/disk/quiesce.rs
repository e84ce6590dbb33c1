// SPDX-License-Identifier: GPL-2.0

//! Quiescing the queue of a disk.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use super::{
    DiskRef,
    GenDisk, //
};
use crate::mq::Operations;
use kernel::{
    bindings,
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

/// The number of times that a disk is quiesced.
#[pin_data]
pub(super) struct Quiesce {
    /// Locked while the queue is quiesced or unquiesced, so that the two do not overlap.
    #[pin]
    state: Mutex<State>,
}

struct State {
    /// The number of [`Quiesced`] guards.
    guards: u32,
    /// Whether the removal of the disk has begun: its queue stays unquiesced.
    is_removed: bool,
}

impl State {
    /// Returns whether the queue is quiesced.
    fn is_quiesced(&self) -> bool {
        self.guards > 0 && !self.is_removed
    }
}

impl Quiesce {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_mutex!(State {
                guards: 0,
                is_removed: false,
            }),
        })
    }

    /// Changes the state, and quiesces or unquiesces the queue of `disk`, whose [`Quiesce`] this
    /// is, if that follows.
    fn change(&self, disk: &GenDisk, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        let was_quiesced = state.is_quiesced();
        change(&mut state);
        match (was_quiesced, state.is_quiesced()) {
            // SAFETY: A disk has a queue, which lives as long as the disk.
            (false, true) => unsafe { bindings::blk_mq_quiesce_queue(disk.as_raw_queue()) },
            (true, false) => {
                // SAFETY: A disk has a queue; it was quiesced once, for which this makes up.
                unsafe { bindings::blk_mq_unquiesce_queue(disk.as_raw_queue()) };
                // Requeued requests wait on a list of their own.
                // SAFETY: A disk has a queue. The worker that this queues is cancelled by the
                // deletion of the disk, which begins later, or by the release of one that was never
                // added.
                unsafe { bindings::blk_mq_kick_requeue_list(disk.as_raw_queue()) };
            }
            _ => {}
        }
    }
}

/// The queue of a disk is quiesced as long as this lives, or until the disk is removed.
///
/// Dropping the last one passes the waiting requests to the driver; sleeps.
///
/// # Invariants
///
/// It is one of those that the disk's [`Quiesce`] counts.
#[must_use = "the queue is unquiesced when it is dropped"]
pub struct Quiesced<T: Operations>(DiskRef<T>);

impl<T: Operations> Drop for Quiesced<T> {
    fn drop(&mut self) {
        let shared = &self.0 .0;
        // By the type invariants, `guards` is not 0.
        let change = |state: &mut State| state.guards = state.guards.saturating_sub(1);
        shared.quiesce.change(&shared.disk, change);
    }
}

impl<T: Operations> DiskRef<T> {
    /// Quiesces the queue: new requests wait, and requests that the driver requeues by
    /// [`Request::requeue_later`](crate::mq::Request::requeue_later) as well. Waits until no call
    /// of [`Operations::queue_rq`] for the disk is running.
    pub fn quiesce(&self) -> Quiesced<T> {
        let change = |state: &mut State| state.guards = state.guards.saturating_add(1);
        self.0.quiesce.change(&self.0.disk, change);
        // INVARIANT: It was counted just now.
        Quiesced(self.clone())
    }

    /// Unquiesces the queue before the disk is removed, and keeps it unquiesced: the removal waits
    /// for requests.
    pub(super) fn unquiesce_for_good(&self) {
        let change = |state: &mut State| state.is_removed = true;
        self.0.quiesce.change(&self.0.disk, change);
    }
}
