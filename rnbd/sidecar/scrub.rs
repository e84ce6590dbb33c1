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
    /// The counts so far.
    pub found: Counts,
}

/// The number of blocks by what the check has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Data and tuple fit.
    pub good: u64,
    /// Zeroes: never written, or discarded.
    pub unwritten: u64,
    /// The blocks of `unwritten` whose tuples fit any data.
    pub unchecked: u64,
    /// The blocks of `unwritten` with something else than zeroes at their place: they were
    /// discarded, or written for the first time and have lost their tuple.
    pub not_empty: u64,
    /// Lost in a crash or by a failed write.
    pub lost: u64,
    /// The data do not fit the guard.
    pub wrong_guard: u64,
    /// The tuple is of another block or device, or damaged.
    pub wrong_reference: u64,
    /// The data cannot be read, or the tuple.
    pub unreadable: u64,
}

impl Counts {
    /// The counts before the first block.
    pub const NONE: Self = Self {
        good: 0,
        unwritten: 0,
        unchecked: 0,
        not_empty: 0,
        lost: 0,
        wrong_guard: 0,
        wrong_reference: 0,
        unreadable: 0,
    };

    /// Counts a block; `None`: it cannot be read. `is_empty`: it has zeroes.
    pub(super) fn count(&mut self, verdict: Option<Verdict>, is_empty: bool) {
        if verdict == Some(Verdict::Unwritten) {
            self.unchecked = self.unchecked.saturating_add(1);
            self.not_empty = self.not_empty.saturating_add((!is_empty).into());
        }
        let counter = match verdict {
            Some(Verdict::Good) if is_empty => &mut self.unwritten,
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

    /// Checks the next group, whose PI block is `pi_block`. `crc` reads a data block and returns
    /// its CRC, `None` if it cannot be read; that of zeroes is `zeroes`. `report` gets each block
    /// that is not readable.
    pub fn check(
        &mut self,
        pi_block: &Block,
        seal: &Seal,
        zeroes: u64,
        mut crc: impl FnMut(u64) -> Option<u64>,
        mut report: impl FnMut(u64, Option<Verdict>),
    ) {
        for index in 0..=group::Index::MAX {
            let block = group::block_at(self.next, index);
            let tuple = group::tuple(pi_block, index);
            let (verdict, found) = match seal.check(&tuple, block, 0) {
                Verdict::Good | Verdict::WrongGuard => {
                    let found = crc(block);
                    (found.map(|crc| seal.check(&tuple, block, crc)), found)
                }
                // Nothing is needed of it, so it need not be readable.
                Verdict::Unwritten => (Some(Verdict::Unwritten), crc(block)),
                other => (Some(other), None),
            };
            let is_empty = found.is_none_or(|crc| crc == zeroes);
            self.found.count(verdict, is_empty);
            if !verdict.is_some_and(Verdict::is_readable) {
                report(block, verdict);
            }
        }
        self.next = self.next.saturating_add(1);
    }

    /// Goes on behind the next group, whose PI block cannot be read: nor can its blocks.
    pub fn skip(&mut self) {
        self.found.unreadable = self.found.unreadable.saturating_add(group::GROUP_BLOCKS);
        self.next = self.next.saturating_add(1);
    }
}
