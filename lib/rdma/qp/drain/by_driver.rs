// SPDX-License-Identifier: GPL-2.0

//! Drains by functions of the driver (`drain_sq`, `drain_rq`), side by side, each in a work item.
//!
//! The functions of mlx5, mlx4 and hns also end the work of a dead device. They wait without a
//! limit, and for a tenth of a second before they look at a queue that is polled: a path has up to
//! two such queues for each CPU.

use super::Draining;
use kernel::prelude::*;
use kernel_ext::{
    memory::without_io,
    sync::Global,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

static QUEUE: Global<Option<WorkQueue>> = Global::new(None);

/// The queue of the work items, as long as the module is loaded.
pub(crate) struct Workers(());

impl Workers {
    /// Makes the queue. Called once, by the module's init.
    pub(crate) fn new() -> Result<Self> {
        // A path is ended so that memory can be written to a disk.
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        *QUEUE.lock() = Some(WorkQueue::new(c"rdma_rust_drain", flags, 0)?);
        Ok(Self(()))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Waits for the ends of work items whose queue pairs are gone.
        let queue = QUEUE.lock().take();
        drop(queue);
    }
}

/// A queue pair whose driver drains it.
///
/// # Invariants
///
/// The drain of the queue pair was begun, and only [`Self::run`] ends it: the queue pair is not
/// destroyed before that.
#[derive(Clone, Copy)]
struct ByDriver {
    qp: Draining<'static>,
    /// The error with which the device has refused the last work requests.
    error: Error,
}

// SAFETY: All that it refers to may be used by any thread.
unsafe impl Send for ByDriver {}

impl ByDriver {
    fn run(self) {
        let done = without_io(|| self.qp.end_by_driver(self.error));
        // The queue pair may be gone after this.
        self.qp.end(done);
    }
}

/// Has the driver end a drain that this thread has begun, of a queue pair whose device has refused
/// work with `error`. Sleeps; most often it returns before that is done.
pub(super) fn start(qp: &Draining<'_>, error: Error) {
    qp.drain.leave_to_driver();
    // SAFETY: The types differ in a lifetime only. By the invariants of `Draining` the queue pair
    // is destroyed after a drain that succeeded, for which this one has to end: it is not used
    // after that.
    let qp = unsafe { core::mem::transmute::<Draining<'_>, Draining<'static>>(*qp) };
    // INVARIANT: The drain was begun, and the caller does not end it.
    let item = ByDriver { qp, error };
    let queue = QUEUE.lock();
    let spawn = |queue: &WorkQueue| queue.try_spawn(GFP_KERNEL, move || item.run());
    let is_queued = queue.as_ref().is_some_and(|queue| spawn(queue).is_ok());
    drop(queue);
    if !is_queued {
        // Without memory one after the other, and without a limit.
        item.run();
    }
}
