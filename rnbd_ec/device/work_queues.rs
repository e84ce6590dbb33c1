// SPDX-License-Identifier: GPL-2.0

//! The work queues of all arrays.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::workqueue::{
    Flags,
    WorkQueue, //
};

/// The work queues.
///
/// While memory is short a queue has one thread, its rescuer, for all of its items. Items that wait
/// for others have a queue of their own, so that those others run.
pub(crate) struct WorkQueues {
    /// Engines, their clocks and helpers, which wait for nothing.
    pub(super) engines: WorkQueue,
    /// Upkeeps, which wait for engines.
    pub(super) upkeeps: WorkQueue,
    /// Submitters, which wait for members that take no more.
    pub(super) submitters: Arc<WorkQueue>,
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
        let queue = |name| WorkQueue::new(name, Flags::UNBOUND | Flags::MEM_RECLAIM, 0);
        let queues = Self {
            engines: queue(c"rnbd_ec")?,
            upkeeps: queue(c"rnbd_ec_upkeep")?,
            submitters: Arc::new(queue(c"rnbd_ec_submit")?, GFP_KERNEL)?,
            events: WorkQueue::new(c"rnbd_ec_events", Flags::UNBOUND, 0)?,
            owed: WorkQueue::new(c"rnbd_ec_owed", Flags::UNBOUND, 0)?,
        };
        Ok(Arc::new(queues, GFP_KERNEL)?)
    }
}
