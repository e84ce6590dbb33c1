// SPDX-License-Identifier: GPL-2.0

//! The sequence numbers of the journal: which record may be written, and which slot is free.
//!
//! One record is written at a time, and the next one when it is durable: so the sequence numbers on
//! the device have no gap, and a record that is missing is damage.
//!
//! A record says from which one on a replay needs the journal (its tail). The record that is being
//! written may be torn, and its slot is lost then, so the tail of the one *before* it must not
//! include that slot. It does not, as each record is written only when the tail leaves one slot
//! more free than it needs.

use super::record::{
    Head,
    Unit, //
};

/// The journal of an open device.
///
/// # Invariants
///
/// `settled <= next`, and `next - settled < slots`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    slots: u32,
    unit: Unit,
    /// The sequence number of the next record, or of the one that is being written.
    next: u64,
    /// The lowest record whose data or PI blocks may not be durable.
    settled: u64,
    /// The newest record with entries: marks after it need no flush.
    newest_entries: u64,
    /// The number below which the newest record says that data were flushed.
    told: u64,
    /// The record that is being written.
    writing: Option<Writing>,
    /// The newest record is a mark that needs no record before it.
    is_empty: bool,
    /// The number of blocks of the device, and what the newest record says that it is.
    device_blocks: u64,
    named_blocks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Writing {
    head: Head,
    is_mark: bool,
}

impl Ring {
    /// The journal of `slots` slots with records of whole units, whose newest record is a mark with
    /// the sequence number `mark` that needs no record before it, on a device of `device_blocks`
    /// blocks.
    pub const fn after_mark(slots: u32, unit: Unit, mark: u64, device_blocks: u64) -> Self {
        let next = mark.saturating_add(1);
        Self {
            slots,
            unit,
            next,
            settled: next,
            newest_entries: 0,
            told: mark,
            writing: None,
            is_empty: true,
            device_blocks,
            named_blocks: device_blocks,
        }
    }

    /// The unit of its records.
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// The lowest record that is not settled.
    pub const fn settled(&self) -> u64 {
        self.settled
    }

    /// The sequence number of the next record, or of the one that is being written.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The number of records that are not settled.
    const fn used(&self) -> u64 {
        self.next.saturating_sub(self.settled)
    }

    /// Returns whether at least half of the slots are in use, so that records should be settled.
    pub fn is_half_used(&self) -> bool {
        self.used().saturating_mul(2) >= self.slots.into()
    }

    /// The device has so many blocks from now on.
    pub fn grown(&mut self, device_blocks: u64) {
        self.device_blocks = device_blocks;
    }

    /// Returns whether nothing is to be told by a mark that needs no record before it.
    const fn has_last_mark(&self) -> bool {
        self.is_empty && self.named_blocks == self.device_blocks
    }

    /// Returns whether a replay would find nothing to do, and the size of the device.
    pub const fn is_empty(&self) -> bool {
        self.has_last_mark() && self.writing.is_none()
    }

    /// Returns whether a mark would make it empty.
    pub const fn can_be_emptied(&self) -> bool {
        !self.has_last_mark() && self.writing.is_none() && self.settled == self.next
    }

    /// Returns whether a record with entries can be written now.
    pub fn has_room(&self) -> bool {
        // One slot is for this record, and one for the next one while this is the newest.
        self.writing.is_none() && self.used().saturating_add(2) <= self.slots.into()
    }

    /// Returns whether a mark is of use, though it does not empty the journal: damage of the newest
    /// record is not seen without one behind it, nor a lost write that was `flushed` since.
    pub fn gains_by_mark(&self, flushed: u64) -> bool {
        let behind_entries = self.newest_entries.saturating_add(1);
        let is_newest = behind_entries == self.next;
        let is_told = flushed.min(behind_entries) <= self.told;
        !self.is_empty && self.has_room() && (is_newest || !is_told)
    }

    /// Starts to write a record or a mark, which [`has_room`](Self::has_room), or a mark that
    /// [empties](Self::can_be_emptied) the journal; returns its head. The data of all records below
    /// `flushed` are durable.
    pub fn start(&mut self, is_mark: bool, flushed: u64) -> Head {
        let head = Head {
            sequence: self.next,
            tail: self.settled,
            flushed: flushed.min(self.next),
            device_blocks: self.device_blocks,
        };
        self.writing = Some(Writing { head, is_mark });
        head
    }

    /// The record that was started is durable, or its write has failed. Then the next one gets its
    /// number and its slot: as its data were not written, a replay may find either.
    pub fn end(&mut self, is_durable: bool) {
        if let Some(writing) = self.writing.take().filter(|_| is_durable) {
            self.is_empty = writing.is_mark && writing.head.tail == self.next;
            self.told = writing.head.flushed;
            self.named_blocks = writing.head.device_blocks;
            if !writing.is_mark {
                self.newest_entries = self.next;
            }
            self.next = self.next.saturating_add(1);
            self.settle(0);
        }
    }

    /// The data and the PI blocks of all records before `floor` are durable.
    pub fn settle(&mut self, floor: u64) {
        self.settled = self.settled.max(floor.min(self.next));
        if self.settled > self.newest_entries && self.writing.is_none() {
            self.settled = self.next;
        }
    }
}
