// SPDX-License-Identifier: GPL-2.0

//! Sectors of one member, or of two, that cannot be read, while the array is in use and when it is
//! assembled.

use rnbd_ec::proto::array::{
    Array,
    Looked, //
};
use seglog::{
    layout::{
        Layout,
        SLOTS, //
    },
    members::Members, //
};

use super::{
    assembling::{
        assemble,
        OneByOne, //
    },
    Life,
    OnHost, //
};
use crate::member::SECTOR;

impl Life {
    /// The members that have bad sectors.
    fn spoilt(&self) -> Members {
        let each = 0..self.setting.spoilt;
        each.map(|n| (self.seed as usize + n) % 3).collect()
    }

    /// A sector of such a member cannot be read any more: where the log goes on, of a slot of its
    /// superblock, of the table, or anywhere.
    pub(super) fn spoil(&mut self) {
        let layout = *self.array.layout();
        let first = layout.segment(0);
        let segment = layout.segment_bytes();
        let at = match self.random.below(5) {
            0 => self.log_end.max(first),
            // That of a segment, where the next batch may be.
            1 => first + self.random.below(layout.parts().segments.into()) * segment,
            2 => self.random.below(first),
            _ => first + self.random.below(layout.end_bytes() - first),
        };
        // A member without a superblock is none.
        let slots = Layout::slot(0)..Layout::slot(0) + 2 * 4096;
        let at = match at {
            at if slots.contains(&at) => Layout::slot((self.random.below(SLOTS.into())) as u8),
            at => at,
        };
        let other = (0..SLOTS)
            .map(Layout::slot)
            .find(|slot| slots.contains(&at) && *slot != at);
        let several = self.random.below(self.setting.spoilt as u64) as usize;
        let member = (self.seed as usize + several) % 3;
        let member = &mut self.members[member];
        if at < layout.end_bytes() && other.is_none_or(|other| member.can_read(other, SECTOR)) {
            member.spoil(at);
        }
    }

    /// Assembles after a power failure. With two others in sync bad sectors of one member do
    /// not prevent it; else it may be refused, and is assembled when they can be read again.
    pub(super) fn assemble_again(&mut self, present: Members, in_sync: bool) -> Array<OnHost> {
        let is_enough = in_sync && present.minus(self.spoilt()).count() == 2;
        let before = self.members.clone();
        let devices = &mut OneByOne(&mut self.members);
        match assemble(devices, present, &mut self.random) {
            Ok(array) => array,
            Err(why) => {
                let may_be = self.setting.spoilt > 0 && !is_enough;
                assert!(may_be, "{}: {why}", self.label());
                self.unreadable += 1;
                self.members = before;
                self.members.iter_mut().for_each(|member| member.mend());
                let devices = &mut OneByOne(&mut self.members);
                assemble(devices, present, &mut self.random).unwrap()
            }
        }
    }

    /// Whether a block cannot be read because of bad sectors: one of the others lacks its segment,
    /// or has such sectors, too.
    pub(super) fn may_be_lost(&mut self, block: u64) -> bool {
        let Looked::Found(found) = self.array.begin_read(block, 1) else {
            return false;
        };
        self.array.end_read(&found);
        let others = Members::ALL.minus(self.spoilt());
        let is_lost = match self.setting.spoilt {
            0 => false,
            1 => !others.is_within(found.usable),
            _ => true,
        };
        self.unreadable += u64::from(is_lost);
        is_lost
    }
}
