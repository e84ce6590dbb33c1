// SPDX-License-Identifier: GPL-2.0

//! The choice of the thread that submits a request to the disk of the server: the completion
//! handler that brings it, or, in its turn, the work item of the device.
//!
//! A thread that submits to a disk which takes no more, as its tags are all used or its queue is
//! frozen, sleeps until it does. The handler, which also serves the other disks of its path and its
//! heartbeats, must not: it asks the disk to refuse (`REQ_NOWAIT`). What was refused waits for the
//! work item, and what comes meanwhile waits behind it, so that none is passed by again and again.
//! A disk that cannot refuse gets all requests from the handlers, which may sleep: pmem and zram
//! work in who submits to them, so with one work item they would have the speed of one CPU.
//!
//! Discards are the work item's: writeback throttling has who submits one sleep, and does not look
//! at that flag. Writes it lets pass, as they are sent as those of a task that waits.

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
    /// Creates the rules for a device that `can_refuse`, and whose mapping permits these operations
    /// to plain requests.
    pub const fn new(can_refuse: bool, plain: Ops) -> Self {
        Self { can_refuse, plain }
    }

    /// Returns whether the handler asks the disk to refuse what would have to wait.
    pub const fn may_refuse(self) -> bool {
        self.can_refuse
    }

    /// Returns which of these operations the handler submits, while others wait for the work item
    /// or none do.
    const fn among(self, ops: Ops, has_waiting: bool) -> Ops {
        match (has_waiting, self.can_refuse) {
            (true, _) => Ops::NONE,
            (false, true) => ops.without(Op::Discard),
            (false, false) => ops,
        }
    }

    /// Returns whether the handler submits a request that is not plain, while others wait for the
    /// work item or none do.
    pub const fn is_at_once(self, op: Op, has_waiting: bool) -> bool {
        self.among(Ops::ALL, has_waiting).contains(op)
    }

    /// Returns the operations of plain requests that the handler submits.
    pub const fn at_once(self, has_waiting: bool) -> Ops {
        self.among(self.plain, has_waiting)
    }
}
