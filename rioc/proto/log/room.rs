// SPDX-License-Identifier: GPL-2.0

//! Segments that may be written, and how much is live at most.

use seglog::collect::{
    reserve,
    Purpose,
    RESERVE_MIN, //
};

use super::{
    super::body::TAGGED_BYTES,
    LogMemory,
    Logged, //
};

/// The segments that writes leave free beside the reserve of the log: each crash closes one, and as
/// many may come before anything could be collected. What gives room back takes of them.
const CLOSED_MAX: usize = 4;
/// The segments that are in use, or named as the next one, and one that is filled by what is moved.
const IN_USE: usize = 3;

/// The fewest segments of a log that takes writes.
pub const SEGMENTS_MIN: u32 = RESERVE_MIN + (CLOSED_MAX + IN_USE) as u32 + 2;

impl<M: LogMemory> Logged<M> {
    fn left(&self, purpose: Purpose) -> usize {
        let closed = match purpose {
            Purpose::Write => CLOSED_MAX,
            Purpose::Reserved | Purpose::Collect => 0,
        };
        purpose.leaves(&self.layout).saturating_add(closed)
    }

    /// Returns a segment for a batch with this purpose.
    pub(super) fn free(&mut self, purpose: Purpose) -> Option<u32> {
        let left = self.left(purpose);
        let end = (self.log.cursor(), self.log.durable());
        let with = (&self.start, &self.layout);
        self.free.first(left, (&self.segments, end), with)
    }

    /// Whether segments are few: some are to be collected.
    pub fn is_low(&mut self) -> bool {
        let left = self.left(Purpose::Write);
        let wanted = left.saturating_add(reserve(&self.layout));
        let end = (self.log.cursor(), self.log.durable());
        let with = (&self.start, &self.layout);
        !self.free.has(wanted, (&self.segments, end), with)
    }

    /// Returns the bytes that may be live in a segment which is collected: with more, what is moved
    /// could take as much room as before.
    pub(super) fn gain_bytes(&self) -> u64 {
        self.layout.segment_bytes() / 4 * 3
    }

    /// Returns how many blocks there may be. With as many in all segments that writes may use, one
    /// of these has so few that collecting it gains room.
    pub fn blocks_max(&self) -> u64 {
        let kept = self.left(Purpose::Write).saturating_add(IN_USE);
        let segments = (self.layout.parts().segments as usize).saturating_sub(kept);
        let bytes = self.gain_bytes().saturating_mul(segments as u64);
        bytes / TAGGED_BYTES as u64
    }

    /// Returns how many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.segments.live_bytes() / TAGGED_BYTES as u64
    }
}
