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

impl<M: Memory> Array<M> {
    /// Returns a segment for a batch with this purpose.
    pub(super) fn free(&mut self, purpose: Purpose) -> Option<u32> {
        let left = match purpose {
            Purpose::Write => reserve(&self.layout).saturating_add(CLOSED_MAX),
            Purpose::Reserved | Purpose::Collect => purpose.leaves(&self.layout),
        };
        let end = (self.log.cursor(), self.log.durable());
        let with = (&self.start, &self.layout);
        self.free.first(left, (&self.segments, end), with)
    }

    /// Whether fewer segments are free than writes should find.
    pub(super) fn is_running_low(&mut self) -> bool {
        let wanted = reserve(&self.layout)
            .saturating_mul(2)
            .saturating_add(CLOSED_MAX);
        let end = (self.log.cursor(), self.log.durable());
        let with = (&self.start, &self.layout);
        !self.free.has(wanted, (&self.segments, end), with)
    }
}
