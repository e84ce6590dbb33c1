// SPDX-License-Identifier: GPL-2.0

//! The end of the log while it is written: where batches go, and when they are acknowledged.
//!
//! A batch is acknowledged, in the order of the log, when all members that live have it. When a
//! member fails, nothing is acknowledged and no flush ends before the epoch without it is durable
//! on the others. A member that *returns* is written and waited for as those that live, but no
//! epoch calls it in sync yet. Its user calls under one lock.

use super::{
    batch::{
        Head,
        Kind, //
    },
    cursor::Cursor,
    layout::Layout,
    members::{
        member_of,
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    superblock::NUMBER_MAX,
    table::SEGMENT_SEQUENCE_MAX,
    ArrayTag,
    Checksum, //
};

/// The batches that are in flight at most.
pub const WINDOW: usize = 4;

/// A batch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InFlight {
    sequence: u64,
    /// The use of its segment.
    segment_sequence: u64,
    /// The cursor at which it was expected.
    before: Cursor,
    /// The members that it was begun on, and that have not failed since then.
    members: Members,
    /// The members whose writes have not ended.
    pending: Members,
}

/// A batch that is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its number.
    pub sequence: u64,
    /// The members that have what is theirs of it: its segment is noted to be on them.
    pub members: Members,
}

/// A flush in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flushing {
    /// The last batch that was acknowledged when it began, and the use of its segment.
    covers: (u64, u64),
    pending: Members,
}

/// The reason why a batch cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The end of a batch is waited for: as many are in flight as may be.
    Window,
    /// A segment is waited for: none is free to follow. A dump, with a flush before it, may free
    /// some.
    Segment,
    /// The epoch without a member that has failed is waited for.
    Epoch,
    /// No batch can begin any more: fewer members live than a batch needs, or the numbers are used
    /// up.
    Stopped,
    /// The batch can never begin: it is empty, or longer than a batch can be.
    TooLong,
}

/// A batch that begins: the user writes the column of each member in `head.used`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The head, to be written with [`Head::bytes`].
    pub head: Head,
    /// The byte at which each column begins on its member.
    pub at: u64,
}

/// The end of a log that is open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    layout: Layout,
    tag: ArrayTag,
    cursor: Cursor,
    /// The next batch begins a segment, as the members have changed.
    is_closed: bool,
    live: Members,
    /// Members that are written, too, and are not in sync yet.
    returning: Members,
    /// Members that have failed, of which no epoch says so yet.
    failing: Members,
    window: [Option<InFlight>; WINDOW],
    /// The cursor at which the first batch of the incarnation was expected, while it is the only
    /// one: the next assembly may write it again, so no start is behind it.
    opened_at: Option<Cursor>,
    /// A batch, and the use of its segment.
    acknowledged: (u64, u64),
    flushing: Option<Flushing>,
    durable: (u64, u64),
}

impl Log {
    /// Begins behind a batch that is durable on all members in `live`.
    pub(crate) fn new(layout: Layout, tag: ArrayTag, cursor: Cursor, live: Members) -> Self {
        let before = (cursor.sequence.saturating_sub(1), cursor.segment_sequence);
        Self {
            layout,
            tag,
            cursor,
            is_closed: false,
            live,
            returning: Members::NONE,
            failing: Members::NONE,
            window: [None; WINDOW],
            opened_at: None,
            acknowledged: before,
            flushing: None,
            durable: before,
        }
    }

    /// The batch that has begun is the first of the incarnation; it was expected at `at`. It begins
    /// a segment, so nothing follows in the one before: a start there does not keep it.
    pub(crate) fn opened(&mut self, at: Cursor) {
        self.opened_at = Some(Cursor {
            unit: self.layout.parts().segment_units,
            ..at
        });
    }

    /// Returns the members that live, and are in sync.
    pub fn live(&self) -> Members {
        self.live
    }

    /// Returns the members that are written: those that live, and those that return.
    pub fn written_members(&self) -> Members {
        self.live.or(self.returning)
    }

    /// Returns where the next batch is expected.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Returns where the oldest batch is expected that is not acknowledged.
    pub(crate) fn oldest(&self) -> Cursor {
        let each = self.window.iter().flatten().map(|batch| batch.before);
        let oldest = each.min_by_key(|before| before.sequence);
        oldest.or(self.opened_at).unwrap_or(self.cursor)
    }

    /// Returns the number of the batch up to which all are acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.0
    }

    /// Returns the number of the batch up to which all are durable.
    pub fn durable(&self) -> u64 {
        self.durable.0
    }

    /// Returns the first use of a segment of which a member that fails now may have lost columns,
    /// as they were in its cache: the user [`lose`](super::table::lose)s them.
    pub fn may_be_lost_from(&self) -> u64 {
        self.durable.1
    }

    /// Returns the first use of a segment that may have batches which are not acknowledged:
    /// segments before it can be collected.
    pub fn collectable_before(&self) -> u64 {
        let each = self.window.iter().flatten();
        let oldest = each.map(|batch| batch.before.segment_sequence).min();
        oldest.unwrap_or(self.cursor.segment_sequence)
    }

    /// Returns the number of the next batch, which its records have too.
    pub fn next_sequence(&self) -> u64 {
        self.cursor.sequence
    }

    /// Whether the next batch, of so many units, begins a segment.
    pub fn begins_segment(&self, units: u16) -> bool {
        let end = self.cursor.unit.saturating_add(units.into());
        self.is_closed || self.cursor.unit == 0 || end > self.layout.parts().segment_units
    }

    /// Returns the units that are left of the segment that is written; 0 if the next batch begins
    /// another one.
    pub fn units_left(&self) -> u32 {
        if self.begins_segment(1) {
            0
        } else {
            let units = self.layout.parts().segment_units;
            units.saturating_sub(self.cursor.unit)
        }
    }

    /// Returns the segment that the next batch, of so many units, is in: the parity column, which
    /// its user must know before the bodies are made, is by the segment.
    pub fn segment(&self, units: u16) -> u32 {
        if self.begins_segment(units) {
            self.cursor.next
        } else {
            self.cursor.segment
        }
    }

    /// Returns the members that a mirror in a segment is on: a data column and the last of the
    /// others that live. `column` is the data column with less in it.
    pub fn mirror(&self, segment: u32, column: usize) -> Members {
        let written = self.written_members();
        let live = |column: &usize| written.contains(member_of(segment, *column));
        let own = [column % DATA_COLUMNS, 0, 1]
            .into_iter()
            .find(live)
            .unwrap_or_default();
        let copy = (0..MEMBERS).rev().filter(|other| *other != own).find(live);
        let both = [Some(own), copy].into_iter().flatten();
        both.map(|column| member_of(segment, column)).collect()
    }

    /// Begins a batch. `used` counts for a mirror only. `free` is a segment that may be written, is
    /// not in use, and is not the next one: it will follow the segment that the batch begins. Other
    /// batches need it, too, as the next assembly will begin a segment.
    ///
    /// # Errors
    ///
    /// Returns what is waited for; nothing has changed.
    pub fn begin(
        &mut self,
        (kind, used, units): (Kind, Members, u16),
        bodies: [u32; MEMBERS],
        free: Option<u32>,
        crc: &impl Checksum,
    ) -> Result<Begun, Wait> {
        let has_numbers = self.cursor.sequence < NUMBER_MAX
            && self.cursor.segment_sequence < SEGMENT_SEQUENCE_MAX;
        if self.live.count() < self.layout.members_needed() || !has_numbers {
            return Err(Wait::Stopped);
        }
        if !self.failing.is_empty() {
            return Err(Wait::Epoch);
        }
        if units == 0 || u32::from(units) > self.layout.column_units_max() {
            return Err(Wait::TooLong);
        }
        let (written, begins_segment) = (self.written_members(), self.begins_segment(units));
        let mut slots = self.window.iter_mut();
        let slot = slots.find(|slot| slot.is_none()).ok_or(Wait::Window)?;
        let is_free = |free: &u32| {
            let is_written = *free == self.cursor.segment && self.cursor.sequence > 1;
            !is_written && *free != self.cursor.next && *free < self.layout.parts().segments
        };
        let free = free.filter(is_free).ok_or(Wait::Segment)?;
        let mut cursor = self.cursor;
        if begins_segment {
            cursor = cursor.in_next_segment(free);
        }
        let place = cursor.place();
        let head = Head {
            kind,
            live: written,
            used: match kind {
                Kind::Striped => written,
                Kind::Mirror => used.and(written),
            },
            place,
            units,
            sequence: cursor.sequence,
            incarnation: cursor.incarnation,
            segment_sequence: cursor.segment_sequence,
            durable: self.durable.0,
            next: cursor.next,
            previous: cursor.previous,
            bodies,
        };
        let at = self.layout.at(place).ok_or(Wait::TooLong)?;
        let (_, hash) = head.bytes(self.tag, crc);
        *slot = Some(InFlight {
            sequence: head.sequence,
            segment_sequence: head.segment_sequence,
            before: self.cursor,
            members: head.live,
            pending: head.used,
        });
        self.cursor = cursor.behind(&head, hash);
        self.opened_at = None;
        self.is_closed = false;
        Ok(Begun { head, at })
    }

    /// A member's column of a batch has been written.
    pub fn written(&mut self, sequence: u64, member: usize) {
        let mut each = self.window.iter_mut().flatten();
        if let Some(batch) = each.find(|batch| batch.sequence == sequence) {
            batch.pending = batch.pending.minus(Members::of(member));
        }
    }

    /// A member has failed: an IO has ended with an error, or not in time, or its cache was lost.
    /// Its segment is closed, and nothing is acknowledged before [`Self::epoch_is_durable`].
    ///
    /// One that returns is not in sync by any epoch, so none has to say that it has failed.
    pub fn fail(&mut self, member: usize) {
        let failed = Members::of(member).and(self.written_members());
        if failed.is_empty() {
            return;
        }
        self.failing = self.failing.or(failed.and(self.live));
        self.live = self.live.minus(failed);
        self.returning = self.returning.minus(failed);
        self.is_closed = true;
        let written = self.written_members();
        for batch in self.window.iter_mut().flatten() {
            batch.members = batch.members.minus(failed);
            batch.pending = batch.pending.and(written);
        }
        if let Some(flushing) = &mut self.flushing {
            flushing.pending = flushing.pending.and(written);
        }
    }

    /// A member that has failed is written again, from the next batch on: each IO to it from
    /// before has ended, and it holds the epoch, which says that it has failed. Its segment is
    /// closed, as the members of a segment do not change.
    pub fn take_back(&mut self, member: usize) {
        let back = Members::of(member).minus(self.live);
        self.returning = self.returning.or(back);
        self.is_closed = true;
    }

    /// A member that returns lacks nothing any more: the user begins to write an epoch that calls
    /// it in sync. From now on an epoch has to say if it fails.
    pub fn join(&mut self, member: usize) {
        let joining = Members::of(member).and(self.returning);
        self.returning = self.returning.minus(joining);
        self.live = self.live.or(joining);
    }

    /// Returns the members that have failed and of which no epoch says so yet: the user writes one,
    /// with FUA, to all members that live.
    pub fn failing(&self) -> Members {
        self.failing
    }

    /// An epoch in which `failed` have failed is durable on all members that live. One epoch is
    /// written after the other: each is durable on those that it leaves before its child is.
    pub fn epoch_is_durable(&mut self, failed: Members) {
        self.failing = self.failing.minus(failed);
    }

    /// Whether something may be acknowledged at all.
    fn may_acknowledge(&self) -> bool {
        self.failing.is_empty() && self.live.count() >= self.layout.members_needed()
    }

    /// Takes the oldest batch in flight if it can be acknowledged.
    pub fn acknowledge(&mut self) -> Option<Acknowledged> {
        if !self.may_acknowledge() {
            return None;
        }
        let oldest = self.window.iter_mut().filter(|slot| slot.is_some());
        let slot = oldest.min_by_key(|slot| slot.map(|batch| batch.sequence))?;
        let batch = slot.take_if(|batch| batch.pending.is_empty())?;
        self.acknowledged = (batch.sequence, batch.segment_sequence);
        Some(Acknowledged {
            sequence: batch.sequence,
            members: batch.members,
        })
    }

    /// Begins a flush of what is acknowledged; returns the members that are to be flushed. `None`
    /// if one is in flight, or no epoch says yet that a member has failed.
    pub fn flush(&mut self) -> Option<Members> {
        if self.flushing.is_some() || !self.may_acknowledge() {
            return None;
        }
        self.flushing = Some(Flushing {
            covers: self.acknowledged,
            pending: self.written_members(),
        });
        Some(self.written_members())
    }

    /// A member has been flushed.
    pub fn flushed(&mut self, member: usize) {
        if let Some(flushing) = &mut self.flushing {
            flushing.pending = flushing.pending.minus(Members::of(member));
        }
    }

    /// Ends the flush if it can be acknowledged, and returns the number of the batch up to which
    /// all are durable now.
    pub fn end_flush(&mut self) -> Option<u64> {
        if !self.may_acknowledge() {
            return None;
        }
        let flushing = self
            .flushing
            .take_if(|flushing| flushing.pending.is_empty())?;
        self.durable = self.durable.max(flushing.covers);
        Some(flushing.covers.0)
    }
}
