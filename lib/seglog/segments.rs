// SPDX-License-Identifier: GPL-2.0

//! Decides which segments may be written again, and which are collected.

use core::ops::Range;

use super::{
    collect::Purpose,
    cursor::Cursor,
    layout::Layout,
    members::Members,
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
    /// The first batch of it; 0 if it began before this assembly.
    first: u64,
    /// The members that have its columns.
    members: Members,
    /// The entries that have their record in it.
    live: u32,
    /// Sum of their shares of the bytes of their records.
    bytes: u64,
    /// The batch that left nothing in it.
    emptied_by: u64,
    /// The reads of it that are in flight.
    reads: u32,
    /// All that can be read of it was moved, in this use.
    is_collected: bool,
}

/// All segments, in memory of the user.
///
/// A segment may be written again when nothing in it is live; the batch that has left nothing is
/// durable (else a crash could take that batch from the caches, and the segment's new content
/// had replaced what it had replaced); the start that all members hold is in a later segment (else
/// the log could not be followed through it); and no read of it is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segments<S> {
    all: S,
    /// The sum of what is live in them.
    live_bytes: u64,
}

impl<S: AsRef<[Segment]> + AsMut<[Segment]>> Segments<S> {
    /// Counts what is live, after an assembly: all of it is durable. `memory` has as many elements
    /// as the layout has segments.
    ///
    /// # Errors
    ///
    /// Returns that a word of the table is not possible.
    pub fn count(memory: S, table: &impl Table, layout: &Layout) -> Result<Self, Malformed> {
        let mut segments = Self::known(memory, table, layout)?;
        for index in 0..layout.parts().entries {
            if let Some(spot) = Entry::from_word(table.word(index)).spot(layout)? {
                let is_there = segments.add(spot.segment, spot.share_bytes());
                is_there.then_some(()).ok_or(Malformed)?;
            }
        }
        Ok(segments)
    }

    /// Knows the uses of segments, after an assembly; what is live its user [`add`](Self::add)s.
    /// `memory` has as many elements as the layout has segments.
    ///
    /// # Errors
    ///
    /// Returns that a word of the table is not possible.
    pub fn known(mut memory: S, table: &impl Table, layout: &Layout) -> Result<Self, Malformed> {
        let entries = layout.parts().entries;
        for (segment, index) in memory.as_mut().iter_mut().zip(entries..layout.words()) {
            let known = SegmentUse::from_word(table.word(index)).ok_or(Malformed)?;
            *segment = Segment {
                sequence: known.sequence,
                members: known.members,
                ..Segment::default()
            };
        }
        Ok(Self {
            all: memory,
            live_bytes: 0,
        })
    }

    /// Counts something live in a segment; returns whether there is such a segment.
    pub fn add(&mut self, segment: u32, bytes: u64) -> bool {
        let Some(segment) = self.get(segment) else {
            return false;
        };
        segment.live = segment.live.saturating_add(1);
        segment.bytes = segment.bytes.saturating_add(bytes);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        true
    }

    /// Counts something in a segment as live no more, since the batch of this number.
    pub fn remove(&mut self, segment: u32, bytes: u64, batch: u64) {
        let Some(segment) = self.get(segment) else {
            return;
        };
        segment.live = segment.live.saturating_sub(1);
        segment.bytes = segment.bytes.saturating_sub(bytes);
        segment.emptied_by = batch;
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
    }

    /// Returns the bytes of the records that are live, in all segments.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    fn get(&mut self, segment: u32) -> Option<&mut Segment> {
        self.all.as_mut().get_mut(segment as usize)
    }

    /// A segment's use begins, with a batch on these members.
    pub fn begin(&mut self, segment: u32, (sequence, batch): (u64, u64), members: Members) {
        if let Some(segment) = self.get(segment) {
            segment.sequence = sequence;
            segment.first = batch;
            segment.members = members;
            // Until a batch is acknowledged and replaced it has not been emptied.
            segment.emptied_by = u64::MAX;
            segment.is_collected = false;
        }
    }

    /// All of a segment was read, and what was live is on its way elsewhere. What is left cannot be
    /// read from any member: it is no victim again, or nothing else would be collected.
    pub fn collected(&mut self, segment: u32) {
        if let Some(segment) = self.get(segment) {
            segment.is_collected = true;
        }
    }

    /// Takes up again what could not be read, as it may be readable now.
    pub fn collect_again(&mut self) {
        for segment in self.all.as_mut() {
            segment.is_collected = false;
        }
    }

    /// An entry is assigned by a batch that is acknowledged.
    pub fn assign(&mut self, (old, new): (Entry, Entry), batch: u64, layout: &Layout) {
        if let Ok(Some(spot)) = new.spot(layout) {
            self.add(spot.segment, spot.share_bytes());
        }
        if let Ok(Some(spot)) = old.spot(layout) {
            self.remove(spot.segment, spot.share_bytes(), batch);
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

    /// A read of a segment has ended; whether it was the last one of a segment in which nothing is
    /// live any more.
    pub fn end_read(&mut self, segment: u32) -> bool {
        self.get(segment).is_some_and(|segment| {
            segment.reads = segment.reads.saturating_sub(1);
            segment.reads == 0 && segment.live == 0
        })
    }

    /// Members do not have the columns of some uses, as [`lose`](super::table::lose) has it.
    pub fn lose(&mut self, members: Members, uses: Range<u64>) {
        for segment in self.all.as_mut() {
            if uses.contains(&segment.sequence) {
                segment.members = segment.members.minus(members);
            }
        }
    }

    /// Whether something that can be moved is live in a segment of which one of these members has
    /// no columns.
    pub fn lacks(&self, members: Members) -> bool {
        self.lacking(members, 0).is_some()
    }

    /// Returns a segment of which that is true, `from` or one behind it if there is such a one.
    pub fn lacking(&self, members: Members, from: u32) -> Option<u32> {
        let all = self.all.as_ref();
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let from = from.min(count);
        (from..count).chain(0..from).find(|number| {
            let segment = all.get(*number as usize);
            segment.is_some_and(|segment| segment.lacks(members) && !segment.is_collected)
        })
    }

    /// Returns the segment to be collected next: one with something live of which one of `members`
    /// has no columns, else one with at most `bytes_max` of live records; of several the one with
    /// the least to be moved. `before` is what the log calls collectable.
    pub fn victim(&self, wanted: (Members, u64), before: u64) -> Option<u32> {
        let (mut best, mut number) = (None, 0u32);
        for segment in self.all.as_ref() {
            if let Some(cost) = segment.cost(wanted, before) {
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, number));
                }
            }
            number = number.saturating_add(1);
        }
        best.map(|(_, number)| number)
    }

    /// Whether [`Self::victim`] may return this one.
    pub fn is_victim(&self, segment: u32, wanted: (Members, u64), before: u64) -> bool {
        let segment = self.all.as_ref().get(segment as usize);
        segment.is_some_and(|segment| segment.cost(wanted, before).is_some())
    }

    /// Whether something is live in a use of a segment that can be moved. `before` is as for
    /// [`Self::victim`].
    pub fn is_movable(&self, (segment, sequence): (u32, u64), before: u64) -> bool {
        let segment = self.all.as_ref().get(segment as usize);
        segment.is_some_and(|segment| {
            segment.sequence == sequence && segment.live > 0 && segment.is_movable(before)
        })
    }

    /// Returns the number of a segment's use.
    pub fn sequence(&self, segment: u32) -> Option<u64> {
        let segment = self.all.as_ref().get(segment as usize);
        segment.map(|segment| segment.sequence)
    }

    /// Returns the first batch of a segment's use; 0 if it began before this assembly, whose flush
    /// has said which members have it.
    pub fn first(&self, segment: u32) -> u64 {
        let segment = self.all.as_ref().get(segment as usize);
        segment.map_or(0, |segment| segment.first)
    }

    /// Returns a segment that may be written, the first one behind the end of the log, if as many
    /// remain as a batch with this purpose leaves. `end` and `durable` are those of the log,
    /// `start` is the one that all members which live hold.
    pub fn free(
        &self,
        purpose: Purpose,
        (end, durable): (&Cursor, u64),
        start: (&Start, &Layout),
    ) -> Option<u32> {
        let mut all = self.all_free((end, durable), start);
        let free = all.next()?;
        let left = purpose.leaves(start.1);
        (all.take(left).count() == left).then_some(free)
    }

    /// Whether at least `count` segments may be written; `end` and `start` as for [`Self::free`].
    pub fn has_free(
        &self,
        count: usize,
        (end, durable): (&Cursor, u64),
        start: (&Start, &Layout),
    ) -> bool {
        self.all_free((end, durable), start).take(count).count() == count
    }

    /// Returns one for the first batch of an assembly, of which `end` is where it is expected.
    pub fn free_behind(&self, end: &Cursor, start: (&Start, &Layout)) -> Option<u32> {
        self.all_free((end, u64::MAX), start).next()
    }

    /// Returns the segments that may be written, the first one behind the end of the log first; as
    /// for [`Self::free`]. Only the begin of a segment takes one of them away.
    pub fn all_free(
        &self,
        (end, durable): (&Cursor, u64),
        (start, layout): (&Start, &Layout),
    ) -> impl Iterator<Item = u32> + use<'_, S> {
        let (known, end, start) = (self.all.as_ref(), *end, start.cursor);
        // Nothing follows in a segment that is full, or closed.
        let is_passed = start.unit >= layout.parts().segment_units;
        let kept = start.segment_sequence.saturating_add(is_passed.into());
        let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let first = end.next.saturating_add(1).min(count);
        (first..count).chain(0..first).filter(move |number| {
            let segment = known.get(*number as usize);
            let is_in_use = *number == end.next || (*number == end.segment && end.sequence > 1);
            !is_in_use && segment.is_some_and(|segment| segment.is_free(durable, kept))
        })
    }
}

impl Segment {
    fn is_movable(&self, before: u64) -> bool {
        self.sequence < before && !self.is_collected
    }

    /// Returns what it costs to collect it, the lesser being the better; `None` if it is not to be
    /// collected. As for [`Segments::victim`].
    fn cost(&self, (members, bytes_max): (Members, u64), before: u64) -> Option<(bool, u64)> {
        let has_gain = self.live > 0 && self.bytes <= bytes_max;
        let lacks = self.lacks(members);
        (self.is_movable(before) && (has_gain || lacks)).then_some((!lacks, self.bytes))
    }

    fn lacks(&self, members: Members) -> bool {
        self.live > 0 && !members.is_within(self.members)
    }

    /// `kept` is the first use that the log is followed through.
    fn is_free(&self, durable: u64, kept: u64) -> bool {
        let is_before_start = self.sequence < kept;
        self.sequence == 0
            || (self.live == 0 && self.reads == 0 && self.emptied_by <= durable && is_before_start)
    }
}
