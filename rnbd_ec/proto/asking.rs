// SPDX-License-Identifier: GPL-2.0

//! Decides which members a read asks.
//!
//! A member that does not answer a read in time is slow: others that have what is read are asked
//! instead of it. One that owes as many answers as it may is full, and is left alone, too, if that
//! is possible. No read fails for it, as all members may be well.

use seglog::{
    members::{
        Members,
        DATA_COLUMNS, //
    },
    record::Spot,
    source, //
};

/// The members that a request knows to be slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    slow: Members,
    /// All are waited for, as those that are not slow did not have what is read.
    waits_for_all: bool,
}

/// Whether these members have a record.
fn have(spot: &Spot, members: Members) -> bool {
    source::sources(spot, members).next().is_some()
}

impl Asking {
    /// Returns those of the members that have a record which are asked for it. `full` are those
    /// that owe as many answers as they may: the caller waits for room if it cannot do without
    /// them.
    pub fn ask(&mut self, spot: &Spot, usable: Members, full: Members) -> Members {
        if self.waits_for_all {
            return usable;
        }
        let others = usable.minus(self.slow.or(full));
        if have(spot, others) {
            return others;
        }
        let quick = usable.minus(self.slow);
        if have(spot, quick) {
            // They have too much to do, but not for long.
            return quick;
        }
        // Were one that is slow not waited for, each round would be given up as the one before.
        self.waits_for_all = !usable.and(self.slow).is_empty();
        usable
    }

    /// Members have not answered for too long; whether others of `usable`, all that have the
    /// record, are asked instead of them.
    pub fn hedge(&mut self, spot: &Spot, usable: Members, late: Members) -> bool {
        let has_other = !self.waits_for_all && have(spot, usable.minus(late));
        if has_other {
            self.slow = self.slow.or(late);
        }
        has_other
    }

    /// Has all asked, and waited for, as those that are not slow did not give what is read.
    pub fn wait_for_all(&mut self) {
        self.waits_for_all = true;
    }
}

/// Time that a member is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// None: it was late before, and is not asked.
    Not,
    /// The time of a read that others do as well.
    Briefly,
    /// The time of any IO.
    Long,
}

/// The members that were late while a segment is read, one IO after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    late: Members,
    waits_for_all: bool,
}

impl Patience {
    /// Returns one for a segment of which nothing was read. Without hedged reads, with `hedge_ms`
    /// of 0, all members are waited for.
    pub const fn new(hedge_ms: u32) -> Self {
        Self {
            late: Members::NONE,
            waits_for_all: hedge_ms == 0,
        }
    }

    /// Returns how long a member is waited for. Two others of `usable`, all that have the segment,
    /// give what it has: the head of a batch is on one of them, at least, and each column can be
    /// rebuilt.
    pub fn wait(&self, member: usize, usable: Members) -> Wait {
        let others = usable.minus(self.late.or(Members::of(member)));
        if self.waits_for_all || others.count() < DATA_COLUMNS {
            Wait::Long
        } else if self.late.contains(member) {
            Wait::Not
        } else {
            Wait::Briefly
        }
    }

    /// A member that was waited for briefly has not given what it has.
    pub fn is_late(&mut self, member: usize) {
        self.late = self.late.or(Members::of(member));
    }

    /// Has a member waited for that was late, as the others have not given something. Returns
    /// whether there is one: then that is to be read once more.
    pub fn wait_for_all(&mut self) -> bool {
        let has_late = !self.waits_for_all && !self.late.is_empty();
        self.waits_for_all |= has_late;
        has_late
    }
}
