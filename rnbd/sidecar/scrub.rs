// SPDX-License-Identifier: GPL-2.0

//! A scrub of a device that is not in use: reads every data block and checks it against its tuple.

use super::{
    group,
    layout::Layout,
    tuple::{
        Seal,
        Verdict, //
    },
    Block, //
};

/// A scrub in progress, group by group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    next: u64,
    /// What was found so far.
    pub found: Counts,
}

/// The number of blocks by what the check has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Data and tuple fit.
    pub good: u64,
    /// Without data.
    pub unwritten: u64,
    /// Lost in a crash or by a failed write.
    pub lost: u64,
    /// The data do not fit the guard.
    pub wrong_guard: u64,
    /// The tuple is of another block or device, or damaged.
    pub wrong_reference: u64,
    /// The data cannot be read.
    pub unreadable: u64,
}

impl Counts {
    /// Nothing yet.
    pub const NONE: Self = Self {
        good: 0,
        unwritten: 0,
        lost: 0,
        wrong_guard: 0,
        wrong_reference: 0,
        unreadable: 0,
    };

    /// Counts a block; `None`: it cannot be read.
    pub(super) fn count(&mut self, verdict: Option<Verdict>) {
        let counter = match verdict {
            Some(Verdict::Good) => &mut self.good,
            Some(Verdict::Unwritten) => &mut self.unwritten,
            Some(Verdict::Lost) => &mut self.lost,
            Some(Verdict::WrongGuard) => &mut self.wrong_guard,
            Some(Verdict::WrongReference) => &mut self.wrong_reference,
            None => &mut self.unreadable,
        };
        *counter = counter.saturating_add(1);
    }

    /// Returns the number of blocks that a reader gets an error for.
    pub const fn bad(&self) -> u64 {
        self.lost
            .saturating_add(self.wrong_guard)
            .saturating_add(self.wrong_reference)
            .saturating_add(self.unreadable)
    }
}

impl Scrub {
    /// Returns the group to be checked next; `None` at the end.
    pub fn group(&self, layout: &Layout) -> Option<u64> {
        (self.next < layout.groups()).then_some(self.next)
    }

    /// Checks the next group, whose PI block is `home`. `crc` reads a data block and returns its
    /// CRC, `None` if it cannot be read; it is asked for blocks with data only. `report` gets
    /// each block that is not readable.
    pub fn check(
        &mut self,
        home: &Block,
        seal: &Seal,
        mut crc: impl FnMut(u64) -> Option<u64>,
        mut report: impl FnMut(u64, Option<Verdict>),
    ) {
        for index in 0..=group::Index::MAX {
            let block = group::block_at(self.next, index);
            let tuple = group::tuple(home, index);
            let verdict = match seal.check(&tuple, block, 0) {
                Verdict::Good | Verdict::WrongGuard => {
                    crc(block).map(|crc| seal.check(&tuple, block, crc))
                }
                other => Some(other),
            };
            self.found.count(verdict);
            if !verdict.is_some_and(Verdict::is_readable) {
                report(block, verdict);
            }
        }
        self.next = self.next.saturating_add(1);
    }
}
