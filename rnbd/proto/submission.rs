// SPDX-License-Identifier: GPL-2.0

//! The choice of the thread that submits a request to the disk of the server: the completion
//! handler that brings it, or, in its turn, the work item of the device.
//!
//! Who submits to a disk that takes no more, as its tags are all used or its queue is frozen,
//! sleeps until it does. The handler, which also serves the other disks of its path and its
//! heartbeats, must not: it asks the disk to refuse (`REQ_NOWAIT`). What was refused waits for the
//! work item, and what comes meanwhile waits behind it, so that none is passed by again and again.
//! Of a disk that cannot refuse all requests are the work item's.
//!
//! Discards are the work item's, too: writeback throttling has who submits one sleep, and does not
//! look at that flag. Writes it lets pass, as they are sent as those of a task that waits.

use super::flags::{
    Op,
    Ops, //
};

/// The rules for the requests of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    can_refuse: bool,
    /// The operations of plain requests that the access mode permits.
    plain: Ops,
}

impl Submission {
    /// The operations that a disk can refuse.
    const REFUSABLE: Ops = Ops::ALL.without(Op::Discard);

    /// Creates the rules for a device that `can_refuse`, and whose mapping permits these operations
    /// to plain requests.
    pub const fn new(can_refuse: bool, plain: Ops) -> Self {
        Self { can_refuse, plain }
    }

    /// Returns whether the handler submits a request that is not plain, while others wait for the
    /// work item or none do.
    pub const fn is_at_once(self, op: Op, has_waiting: bool) -> bool {
        self.can_refuse && !has_waiting && Self::REFUSABLE.contains(op)
    }

    /// Returns the operations of plain requests that the handler submits.
    pub const fn at_once(self, has_waiting: bool) -> Ops {
        if self.can_refuse && !has_waiting {
            self.plain.without(Op::Discard)
        } else {
            Ops::NONE
        }
    }
}
