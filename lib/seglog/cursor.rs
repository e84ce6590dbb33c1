// SPDX-License-Identifier: GPL-2.0

//! A place between two batches, and which batch may follow.

use super::{
    batch::Head,
    layout::Place, //
};

/// The place where a batch is expected: behind the one before, or at the start of the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The segment of the batch before.
    pub segment: u32,
    /// The unit behind it; 0 before the first batch of all.
    pub unit: u32,
    /// The next segment.
    pub next: u32,
    /// The number of the batch.
    pub sequence: u64,
    /// The number of the segment's use.
    pub segment_sequence: u64,
    /// The incarnation of the batch before.
    pub incarnation: u64,
    /// The hash of its head.
    pub previous: u32,
}

impl Cursor {
    /// Returns that of an empty log.
    pub const fn first() -> Self {
        Self {
            segment: 0,
            unit: 0,
            next: 0,
            sequence: 1,
            segment_sequence: 0,
            incarnation: 0,
            previous: 0,
        }
    }

    /// Returns its place.
    pub const fn place(&self) -> Place {
        Place {
            segment: self.segment,
            unit: self.unit,
        }
    }

    /// Returns the start of the next segment, which `next` follows.
    pub(crate) const fn in_next_segment(&self, next: u32) -> Self {
        Self {
            segment: self.next,
            unit: 0,
            next,
            segment_sequence: self.segment_sequence.saturating_add(1),
            ..*self
        }
    }

    /// Returns the one behind a batch that fits.
    pub fn behind(&self, head: &Head, hash: u32) -> Self {
        Self {
            segment: head.place.segment,
            unit: head.place.unit.saturating_add(head.units.into()),
            next: head.next,
            sequence: self.sequence.saturating_add(1),
            segment_sequence: head.segment_sequence,
            incarnation: head.incarnation,
            previous: hash,
        }
    }

    /// Whether a batch is the next one.
    pub fn fits(&self, head: &Head) -> bool {
        if head.sequence != self.sequence || head.previous != self.previous {
            return false;
        }
        if head.place.unit == 0 {
            // A later assembly has begun here, or the segment before is full or closed.
            self.is_of_next_use(head) && head.incarnation >= self.incarnation
        } else {
            head.place == self.place()
                && head.segment_sequence == self.segment_sequence
                && head.incarnation == self.incarnation
                && head.next == self.next
        }
    }

    /// Whether a batch is the first one of the next segment in the use that follows, of whichever
    /// incarnation.
    fn is_of_next_use(&self, head: &Head) -> bool {
        head.place.unit == 0
            && head.place.segment == self.next
            && Some(head.segment_sequence) == self.segment_sequence.checked_add(1)
    }

    /// Returns the incarnation of the first batch of the next segment in that use; 0 of another
    /// batch.
    pub(crate) fn begun_by(&self, head: &Head) -> u64 {
        if self.is_of_next_use(head) {
            head.incarnation
        } else {
            0
        }
    }

    /// Returns where the batch can be.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let start = Place {
            segment: self.next,
            unit: 0,
        };
        let here = (self.unit > 0).then(|| self.place());
        here.into_iter().chain([start])
    }
}
