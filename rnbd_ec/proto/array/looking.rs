// SPDX-License-Identifier: GPL-2.0

//! Looks up where blocks are read from.

use seglog::{
    members::Members,
    record::{
        is_since,
        Entry,
        Record,
        Spot, //
    },
    table::{
        SegmentUse,
        Table, //
    },
    Checksum, //
};

use super::{
    Array,
    Memory, //
};

/// Blocks that follow each other, of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first block.
    pub index: u64,
    /// Number of blocks.
    pub count: u32,
    /// Place of the record of the first one.
    pub spot: Spot,
    /// The members that may be read.
    pub usable: Members,
    /// The first batch of its segment's use; 0 if that began before this assembly.
    pub first: u64,
}

/// Result of a look for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The number of blocks that are zeroes.
    Zeroes(u32),
    /// Blocks that have a record.
    Found(Found),
    /// An entry of the table names no place where a record can be.
    Malformed,
}

impl Found {
    /// Parses the record that was read, from its first byte; returns it with its payload if it is
    /// the one of these blocks. A member that has lost its cache, and no flush has told so yet, may
    /// have one of them at the same place that is of an earlier use of the segment.
    pub fn parse<'a>(
        &self,
        bytes: &'a [u8],
        layout: &seglog::layout::Layout,
        crc: &impl Checksum,
    ) -> Option<(Record, &'a [u8])> {
        let blocks = (self.index, self.count);
        let found = self.spot.record(blocks, bytes, layout, crc);
        found.filter(|_| self.first == 0 || is_since(bytes, self.first))
    }
}

impl<M: Memory> Array<M> {
    fn entry(&self, index: u64) -> Entry {
        Entry::from_word(self.words.word(index))
    }

    /// Looks up the blocks from `index` on, at most `most`, which is not 0. Of what is found a read
    /// is counted, which [`Self::end_read`] ends.
    pub fn begin_read(&mut self, index: u64, most: u32) -> Looked {
        let first = self.entry(index);
        let each = |from: u32| from..most.max(1);
        let count = |test: &dyn Fn(u32) -> bool| {
            let mut others = each(1);
            // CAST: It is below `most`.
            others.find(|n| !test(*n)).unwrap_or(most.max(1))
        };
        let nth = |n: u32| self.entry(index.saturating_add(n.into()));
        let spot = match first.spot(&self.layout) {
            Ok(None) => return Looked::Zeroes(count(&|n| nth(n) == Entry::ZEROES)),
            Ok(Some(spot)) => spot,
            Err(_) => return Looked::Malformed,
        };
        let is_next = |n: u32| {
            let other = nth(n).spot(&self.layout).ok().flatten();
            other.is_some_and(|other| {
                other
                    == Spot {
                        block: spot.block.saturating_add(n),
                        ..spot
                    }
            })
        };
        let count = count(&is_next);
        let usable = self.usable(spot.segment);
        self.segments.begin_read(spot.segment);
        Looked::Found(Found {
            index,
            count,
            spot,
            usable,
            first: self.segments.first(spot.segment),
        })
    }

    /// Returns the members in sync that have a segment.
    pub fn usable(&self, segment: u32) -> Members {
        let index = self.layout.parts().entries.saturating_add(segment.into());
        let known = SegmentUse::from_word(self.words.word(index)).unwrap_or_default();
        known.members.and(self.log.live())
    }

    /// A read of what was found has ended.
    pub fn end_read(&mut self, found: &Found) {
        self.end_segment_read(found.spot.segment);
    }

    pub(super) fn end_segment_read(&mut self, segment: u32) {
        if self.segments.end_read(segment) {
            self.free.count_again();
        }
    }

    /// Whether each member that was found may still be read. One that may not has failed, and may
    /// hang: blocks are looked up again before another way is tried.
    pub fn may_still_ask(&self, found: &Found) -> bool {
        let usable = self.usable(found.spot.segment);
        found.usable.minus(usable).is_empty()
    }

    /// Whether blocks are still where they were found, and as many members may be read. If not,
    /// they are looked up again when no way has given them.
    pub fn is_current(&self, found: &Found) -> bool {
        let spot = self.entry(found.index).spot(&self.layout);
        spot == Ok(Some(found.spot)) && found.usable == self.usable(found.spot.segment)
    }
}
