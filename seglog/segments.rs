// SPDX-License-Identifier: GPL-2.0

//! Which segments may be written again.

use super::{
    cursor::Cursor,
    layout::Layout,
    record::{
        Entry,
        Malformed, //
    },
    superblock::Start,
    table::{
        SegmentUse,
        Table, //
    }, //
};

/// A segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The number of its use.
    sequence: u64,
    /// The entries that have their record in it.
    live: u32,
    /// The batch that left nothing in it.
    emptied_by: u64,
    /// The reads of it that are in flight.
    reads: u32,
}

/// All segments, in memory of the user.
///
/// A segment may be written again when nothing in it is live; the batch that has left nothing is
/// durable (else a crash could take that batch from the caches, and the segment's new content
/// had replaced what it had replaced); the start that all members hold is in a later segment (else
/// the log could not be followed through it); and no read of it is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segments<S>(S);

impl<S: AsRef<[Segment]> + AsMut<[Segment]>> Segments<S> {
    /// Counts what is live, after an assembly: all of it is durable. `memory` has as many elements
    /// as the layout has segments.
    ///
    /// # Errors
    ///
    /// Returns that a word of the table is not possible.
    pub fn count(mut memory: S, table: &impl Table, layout: &Layout) -> Result<Self, Malformed> {
        let entries = layout.parts().entries;
        for (segment, index) in memory.as_mut().iter_mut().zip(entries..layout.words()) {
            let known = SegmentUse::from_word(table.word(index)).ok_or(Malformed)?;
            *segment = Segment {
                sequence: known.sequence,
                ..Segment::default()
            };
        }
        let mut segments = Self(memory);
        for index in 0..entries {
            if let Some(spot) = Entry::from_word(table.word(index)).spot(layout)? {
                let segment = segments.get(spot.segment).ok_or(Malformed)?;
                segment.live = segment.live.saturating_add(1);
            }
        }
        Ok(segments)
    }

    fn get(&mut self, segment: u32) -> Option<&mut Segment> {
        self.0.as_mut().get_mut(segment as usize)
    }

    /// A segment's use begins.
    pub fn begin(&mut self, segment: u32, sequence: u64) {
        if let Some(segment) = self.get(segment) {
            segment.sequence = sequence;
            // Until a batch is acknowledged and replaced it has not been emptied.
            segment.emptied_by = u64::MAX;
        }
    }

    /// An entry is assigned by a batch that is acknowledged.
    pub fn assign(&mut self, (old, new): (Entry, Entry), batch: u64, layout: &Layout) {
        if let Ok(Some(spot)) = new.spot(layout) {
            if let Some(segment) = self.get(spot.segment) {
                segment.live = segment.live.saturating_add(1);
            }
        }
        if let Ok(Some(spot)) = old.spot(layout) {
            if let Some(segment) = self.get(spot.segment) {
                segment.live = segment.live.saturating_sub(1);
                segment.emptied_by = batch;
            }
        }
    }

    /// A batch of a segment is acknowledged: it may have assigned nothing that is live.
    pub fn acknowledge(&mut self, segment: u32, batch: u64) {
        if let Some(segment) = self.get(segment).filter(|segment| segment.live == 0) {
            segment.emptied_by = batch;
        }
    }

    /// A read of a segment begins. It is begun under the lock under which its entry was looked up.
    pub fn begin_read(&mut self, segment: u32) {
        if let Some(segment) = self.get(segment) {
            segment.reads = segment.reads.saturating_add(1);
        }
    }

    /// A read of a segment has ended.
    pub fn end_read(&mut self, segment: u32) {
        if let Some(segment) = self.get(segment) {
            segment.reads = segment.reads.saturating_sub(1);
        }
    }

    /// Returns a segment that may be written, the first one behind the end of the log, if another
    /// one remains: the next assembly begins one. `end` and `durable` are those of the log, `start`
    /// is the one that all members which live hold.
    pub fn free(&self, (end, durable): (&Cursor, u64), start: &Start) -> Option<u32> {
        let mut all = self.all_free(end, durable, start);
        let free = all.next()?;
        all.next().map(|_| free)
    }

    /// Returns one for the first batch of an assembly, of which `end` is where it is expected.
    pub fn free_behind(&self, end: &Cursor, start: &Start) -> Option<u32> {
        self.all_free(end, u64::MAX, start).next()
    }

    fn all_free(
        &self,
        end: &Cursor,
        durable: u64,
        start: &Start,
    ) -> impl Iterator<Item = u32> + use<'_, S> {
        let (known, end, start) = (self.0.as_ref(), *end, *start);
        let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let first = end.next.saturating_add(1).min(count);
        (first..count).chain(0..first).filter(move |number| {
            let segment = known.get(*number as usize);
            let is_in_use = *number == end.next || (*number == end.segment && end.sequence > 1);
            !is_in_use && segment.is_some_and(|segment| segment.is_free(durable, &start))
        })
    }
}

impl Segment {
    fn is_free(&self, durable: u64, start: &Start) -> bool {
        let is_before_start = self.sequence < start.cursor.segment_sequence;
        self.sequence == 0
            || (self.live == 0 && self.reads == 0 && self.emptied_by <= durable && is_before_start)
    }
}
