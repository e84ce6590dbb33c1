// SPDX-License-Identifier: GPL-2.0

//! What a driver of multi-queue block devices implements.

use super::{
    HwQueue,
    Rejected,
    Request, //
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

    /// The driver's data of a request. Made once for each request of the tag set; it keeps its
    /// value from one use of the request to the next.
    type Pdu: Default + Send;

    /// Starts a request. `queue` is the data of its disk.
    ///
    /// `is_last` is false if another call follows at once: a driver that implements
    /// [`Self::commit_rqs`] may then leave telling its hardware to the later call.
    ///
    /// A driver that cannot take the request now returns it as [`Rejected`]; the block layer
    /// tries again when another request of the queue ends, or after 3 ms. All other errors are
    /// reported by [`Request::end`].
    ///
    /// Atomic context: runs in a task under RCU, in softirq or in a worker, with interrupts
    /// enabled, on several CPUs at a time.
    fn queue_rq(
        hw: HwQueue<'_, Self>,
        queue: &Self::Queue,
        rq: Request<Self>,
        is_last: bool,
    ) -> Result<(), Rejected<Self>>;

    /// Tells the hardware about requests that [`Self::queue_rq`] has left to a later call which
    /// does not come. Context as there.
    fn commit_rqs(_hw: HwQueue<'_, Self>, _queue: &Self::Queue) {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Looks for completions of a poll queue and ends their requests; returns how many there
    /// were.
    ///
    /// Called in a task, preemptible, possibly by several at a time for the same queue, and
    /// possibly when nothing is in flight.
    fn poll(_hw: HwQueue<'_, Self>, _queue: &Self::Queue) -> u32 {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// The request with this tag has been the driver's for longer than the queue's time limit
    /// ([`TagSetConfig::timeout_ms`](super::TagSetConfig::timeout_ms), `queue/io_timeout` in
    /// sysfs). The driver may see to it that it ends; it stays the driver's in any case, and may
    /// have ended already. Called again after as long again.
    ///
    /// In a worker, but atomic.
    fn timeout(_queue: &Self::Queue, _tag: u32) {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }
}
