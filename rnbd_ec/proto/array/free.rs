// SPDX-License-Identifier: GPL-2.0

//! Segments that may be written.

use seglog::collect::{
    reserve,
    Purpose, //
};

use super::{
    Array,
    Memory,
    CLOSED_MAX, //
};

/// The knowledge of which segments may be written: batches ask for it all the time, and a look goes
/// through all segments, of which an array of a terabyte has half a million.
///
/// Only a batch that begins a segment takes one of them away. There may be more when more is
/// durable, when the members hold a later start, and when the last read of a segment has ended.
#[derive(Debug, Default)]
pub(super) struct Free {
    /// The one that a batch names.
    first: Option<u32>,
    /// The least number of them.
    least: usize,
    /// The batch that was durable, and the generation of the start, when they were counted.
    counted_at: Option<(u64, u64)>,
}

impl Free {
    /// Takes the segment that a batch has named: it is in use.
    pub(super) fn take(&mut self) {
        self.first = None;
        self.least = self.least.saturating_sub(1);
    }

    /// Has them counted again, as there may be one more.
    pub(super) fn count_again(&mut self) {
        self.counted_at = None;
    }
}

impl<M: Memory> Array<M> {
    /// Returns a segment for a batch with this purpose.
    pub(super) fn free(&mut self, purpose: Purpose) -> Option<u32> {
        let left = match purpose {
            Purpose::Write => reserve(&self.layout).saturating_add(CLOSED_MAX),
            Purpose::Reserved | Purpose::Collect => purpose.leaves(&self.layout),
        };
        if !self.has_free(left.saturating_add(1)) {
            return None;
        }
        if self.free.first.is_none() {
            let with = (&self.start, &self.layout);
            let (end, durable) = (self.log.cursor(), self.log.durable());
            self.free.first = self.segments.all_free((end, durable), with).next();
        }
        self.free.first
    }

    /// Whether fewer segments are free than writes should find.
    pub(super) fn is_running_low(&mut self) -> bool {
        let wanted = reserve(&self.layout)
            .saturating_mul(2)
            .saturating_add(CLOSED_MAX);
        !self.has_free(wanted)
    }

    fn has_free(&mut self, wanted: usize) -> bool {
        let (end, durable) = (self.log.cursor(), self.log.durable());
        let now = Some((durable, self.start.generation));
        if self.free.least < wanted && self.free.counted_at != now {
            let with = (&self.start, &self.layout);
            let all = self.segments.all_free((end, durable), with);
            self.free.least = all.fold(0, |count: usize, _| count.saturating_add(1));
            self.free.counted_at = now;
        }
        self.free.least >= wanted
    }
}
