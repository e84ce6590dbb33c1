// SPDX-License-Identifier: GPL-2.0

//! Counts the segments that may be written, without a look through all of them for each batch.

use super::{
    cursor::Cursor,
    layout::Layout,
    segments::{
        Segment,
        Segments, //
    },
    superblock::Start, //
};

/// The knowledge of which segments may be written: batches ask for it all the time, and a look goes
/// through all segments, of which an array of a terabyte has half a million.
///
/// Only a batch that begins a segment takes one of them away. There may be more when more is
/// durable, when the members hold a later start, and when the last read of a segment has ended.
#[derive(Debug, Default)]
pub struct Free {
    /// The one that a batch names.
    first: Option<u32>,
    /// The least number of them.
    least: usize,
    /// The batch that was durable, and the generation of the start, when they were counted.
    counted_at: Option<(u64, u64)>,
}

impl Free {
    /// Takes the segment that a batch has named: it is in use.
    pub fn take(&mut self) {
        self.first = None;
        self.least = self.least.saturating_sub(1);
    }

    /// Has them counted again, as there may be one more.
    pub fn count_again(&mut self) {
        self.counted_at = None;
    }

    /// Returns a segment for a batch that leaves so many free beside it. `segments`, `end` and
    /// `start` are as for [`Segments::all_free`].
    pub fn first<S: AsRef<[Segment]> + AsMut<[Segment]>>(
        &mut self,
        left: usize,
        (segments, end): (&Segments<S>, (&Cursor, u64)),
        start: (&Start, &Layout),
    ) -> Option<u32> {
        if !self.has(left.saturating_add(1), (segments, end), start) {
            return None;
        }
        if self.first.is_none() {
            self.first = segments.all_free(end, start).next();
        }
        self.first
    }

    /// Whether there are so many; the others are as for [`Self::first`].
    pub fn has<S: AsRef<[Segment]> + AsMut<[Segment]>>(
        &mut self,
        wanted: usize,
        (segments, end): (&Segments<S>, (&Cursor, u64)),
        start: (&Start, &Layout),
    ) -> bool {
        let now = Some((end.1, start.0.generation));
        if self.least < wanted && self.counted_at != now {
            let all = segments.all_free(end, start);
            self.least = all.fold(0, |count: usize, _| count.saturating_add(1));
            self.counted_at = now;
        }
        self.least >= wanted
    }
}
