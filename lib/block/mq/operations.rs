// SPDX-License-Identifier: GPL-2.0

//! The operations of a driver of multi-queue block devices.

use super::{
    HwQueue,
    Rejected,
    Request,
    RequestList, //
};
use kernel::prelude::*;

/// The operations of a driver. Use `#[vtable]` on the implementation.
///
/// No function may sleep.
#[vtable]
pub trait Operations: Sized + 'static {
    /// The driver's data of a tag set (of a transport).
    type Set: Send + Sync;

    /// The driver's data of a disk.
    type Queue: Send + Sync;

    /// The driver's data of a request, initialised once for each request of the tag set; it keeps
    /// its value between uses of the request.
    type Pdu: Default + Send;

    /// Starts a request. `queue` is the data of its disk.
    ///
    /// A driver without resources for the request returns it as [`Rejected`]; the block layer
    /// dispatches it again when another request of the queue ends, or after 3 ms. All other errors
    /// are reported by [`Request::end`].
    ///
    /// Atomic context: runs in a task under RCU, in softirq or in a worker, with interrupts
    /// enabled, on several CPUs at a time.
    fn queue_rq(
        hw: HwQueue<'_, Self>,
        queue: &Self::Queue,
        rq: Request<Self>,
    ) -> Result<(), Rejected<Self>>;

    /// Starts requests that were submitted together. Those that are left in the list are passed to
    /// [`Self::queue_rq`], one by one; so is one that is [requeued](Rejected::requeue).
    ///
    /// Atomic context: runs in a task under RCU, with interrupts enabled, on several CPUs at a
    /// time.
    fn queue_rqs(_list: RequestList<'_, Self>) {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Polls the completions of a poll queue and ends their requests; returns their number.
    ///
    /// Called by tasks, preemptible, possibly by several concurrently for the same queue, and
    /// possibly when no request is in flight.
    fn poll(_hw: HwQueue<'_, Self>, _queue: &Self::Queue) -> u32 {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Handles the timeout of the request with this tag, which the driver has had for longer than
    /// the queue's time limit ([`TagSetConfig::timeout_ms`](super::TagSetConfig::timeout_ms),
    /// `queue/io_timeout` in sysfs). The driver keeps the request, may start to end it, and may
    /// have ended it already. Called again after each further period.
    ///
    /// Called in a worker, in atomic context.
    fn timeout(_queue: &Self::Queue, _tag: u32) {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }
}
