// SPDX-License-Identifier: GPL-2.0

//! Work queues: those that all arrays share, and those of an array.

use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::workqueue::{
    Flags,
    WorkQueue, //
};
use seglog::members::MEMBERS;

/// The work queues that all arrays share.
///
/// While memory is short a queue has one thread, its rescuer, for all of its items. Items that wait
/// for others have a queue of their own, so that those others run: see [`ArrayQueues`].
pub(crate) struct WorkQueues {
    /// Engines, their clocks and helpers, which wait for nothing.
    pub(super) engines: WorkQueue,
    /// Events of user space, which wait for memory. Nothing waits for them but a stop, so they have
    /// no rescuer.
    pub(super) events: WorkQueue,
    /// Ends of members that owe an answer, which wait for it: as long as the device hangs, so they
    /// are not behind a rescuer either. Only the unload of the module waits for them.
    pub(super) owed: WorkQueue,
}

impl WorkQueues {
    /// Creates them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queues = Self {
            engines: rescued(c"rnbd_ec")?,
            events: WorkQueue::new(c"rnbd_ec_events", Flags::UNBOUND, 0)?,
            owed: WorkQueue::new(c"rnbd_ec_owed", Flags::UNBOUND, 0)?,
        };
        Ok(Arc::new(queues, GFP_KERNEL)?)
    }
}

/// The work queues of one array, whose items wait for its engine or for a member. A member that
/// takes nothing, of this array or of another one, has no other item wait for a rescuer.
///
/// An item may have the last reference to an array. None drops the queue on which it runs, which
/// would wait for itself: [`crate::arrays::Arrays`] keeps the queues until nothing is left of the
/// array.
pub(crate) struct ArrayQueues {
    pub(super) shared: Arc<WorkQueues>,
    /// The upkeep, which waits for the engine and for members.
    pub(super) upkeep: WorkQueue,
    /// Submitters, which wait for a member that takes no more: a queue for each.
    pub(super) submitters: [Arc<WorkQueue>; MEMBERS],
}

impl ArrayQueues {
    /// Creates them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(shared: Arc<WorkQueues>) -> Result<Arc<Self>> {
        let submitter = || -> Result<_> { Ok(Arc::new(rescued(c"rnbd_ec_submit")?, GFP_KERNEL)?) };
        let queues = Self {
            shared,
            upkeep: rescued(c"rnbd_ec_upkeep")?,
            submitters: [submitter()?, submitter()?, submitter()?],
        };
        Ok(Arc::new(queues, GFP_KERNEL)?)
    }
}

/// Creates a queue with a rescuer.
fn rescued(name: &CStr) -> Result<WorkQueue> {
    WorkQueue::new(name, Flags::UNBOUND | Flags::MEM_RECLAIM, 0)
}
