// SPDX-License-Identifier: GPL-2.0

//! The log of a store: the batch that an operation joins, when it begins, and when it is durable.
//!
//! Its user calls under one lock. An operation asks for room ([`Medium::prepare`]), puts its blocks
//! and changes the index, all before the lock is left: so it is in one batch, as a whole. What has
//! ended is told by [`Logged::ended`], and [`Logged::settle`] begins what follows by itself.
//! Nothing here waits.

mod assembly;
mod collecting;
mod dumping;
mod filling;
mod room;

use seglog::{
    batch::Head,
    free::Free,
    layout::Layout,
    log::{
        Log,
        WINDOW, //
    },
    members::Members,
    recovery::Opened,
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        note_batch,
        Dump, //
    },
    ArrayTag,
    Checksum, //
};

use super::{
    body::{
        CHANGES_MAX,
        TAGGED_BYTES, //
    },
    entry::Entry,
    medium::{
        Actions,
        Io,
        Medium, //
    },
    slot::Memory,
};

use self::{
    assembly::Words,
    filling::Open, //
};

pub use self::{
    assembly::{
        segments,
        slots,
        walk,
        Table, //
    },
    collecting::{
        Moved,
        Victim, //
    },
    room::SEGMENTS_MIN,
};

/// The columns of memory: those of batches in flight, and one that is filled.
pub const COLUMNS: usize = WINDOW + 1;
/// The slots that the operations of one batch change at most.
pub const SLOTS_MAX: usize = 8 * CHANGES_MAX;
/// The batches, among those that are not durable, that a read tells apart.
const TOUCHED: u64 = 8;
/// The member that there is.
const OWN: Members = Members::of(0);

/// The memory of a log, which its user allocates when it is assembled.
pub trait LogMemory {
    /// A column of a batch, as long as the longest.
    type Column: Memory<u8>;
    /// Numbers of slots: [`SLOTS_MAX`].
    type Slots: Memory<u32>;
    /// The segments, as many as the layout has.
    type Segments: Memory<Segment>;
    /// The words of the table for these.
    type Uses: Memory<u64>;
}

/// A batch in flight.
struct Flying<B> {
    head: Head,
    at: u64,
    column: B,
    bytes: usize,
}

/// The log of a store.
pub struct Logged<M: LogMemory> {
    layout: Layout,
    tag: ArrayTag,
    log: Log,
    segments: Segments<M::Segments>,
    uses: M::Uses,
    superblock: Superblock,
    /// The start that the superblock says.
    start: Start,
    open: Option<Open<M>>,
    /// The memory for the slots of the batch that is filled, while there is none.
    changed: Option<M::Slots>,
    spare: [Option<M::Column>; COLUMNS],
    flying: [Option<Flying<M::Column>>; WINDOW],
    /// The device has a volatile cache, and batches are not written with FUA.
    has_cache: bool,
    /// A dump, and the last batch of which its pages know.
    dump: Option<(Dump, u64)>,
    /// An IO of it is in flight.
    is_dumping: bool,
    free: Free,
    /// An operation waits for a segment.
    is_blocked: bool,
    /// Batches that have changed something: their numbers, and a bit for each hash of an object.
    touched: [(u64, u64); TOUCHED as usize],
}

impl<M: LogMemory> Logged<M> {
    /// Begins a log of the result of an assembly. `has_cache`: batches are durable behind a flush
    /// only.
    pub fn new(
        (opened, superblock): (Opened, Superblock),
        (mut segments, uses): (Segments<M::Segments>, M::Uses),
        (spare, changed): ([Option<M::Column>; COLUMNS], M::Slots),
        has_cache: bool,
    ) -> Self {
        let first = &opened.first;
        let of_use = (first.segment_sequence, first.sequence);
        segments.begin(first.place.segment, of_use, first.live);
        segments.acknowledge(first.place.segment, first.sequence);
        let mut log = Self {
            layout: superblock.layout,
            tag: superblock.tag,
            log: opened.log,
            segments,
            uses,
            superblock,
            start: opened.start,
            open: None,
            changed: Some(changed),
            spare,
            flying: [const { None }; WINDOW],
            has_cache,
            dump: None,
            is_dumping: false,
            free: Free::default(),
            is_blocked: false,
            touched: [(0, 0); TOUCHED as usize],
        };
        log.note(first);
        log
    }

    /// Returns the number of the batch up to which all are durable.
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// Whether the device has failed: nothing becomes durable any more.
    pub fn is_stopped(&self) -> bool {
        self.log.live().is_empty()
    }

    /// Whether nothing is in flight, and all is durable.
    pub fn is_idle(&self) -> bool {
        !self.is_filled() && self.durable() == self.last() && self.dump.is_none()
    }

    /// Whether something is in the batch that is filled.
    fn is_filled(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.body.is_empty())
    }

    fn note(&mut self, head: &Head) {
        let mut words = Words {
            entry: |_| Entry::default(),
            entries: self.layout.parts().entries,
            uses: self.uses.as_mut(),
        };
        note_batch(&mut words, head, OWN, &self.layout);
    }

    /// An IO has ended. [`Self::settle`] is to be called before the lock is left.
    pub fn ended(&mut self, io: Io, is_well: bool) {
        match io {
            _ if !is_well => self.log.fail(0),
            Io::Batch(sequence) => self.log.written(sequence, 0),
            Io::Flush => self.log.flushed(0),
            Io::Dump => self.is_dumping = false,
        }
    }

    /// Does what follows by itself: what is written becomes durable, and what has come meanwhile
    /// begins. Writes that come while others are in flight share a batch, but never wait longer
    /// than for these.
    pub fn settle(
        &mut self,
        entry: impl Fn(u32) -> Entry,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) {
        self.log.end_flush();
        while let Some(acknowledged) = self.log.acknowledge() {
            let is_it = |batch: &mut Flying<_>| batch.head.sequence == acknowledged.sequence;
            let mut all = self.flying.iter_mut();
            let Some(batch) = all.find_map(|batch| batch.take_if(is_it)) else {
                continue;
            };
            self.note(&batch.head);
            let segment = batch.head.place.segment;
            self.segments.acknowledge(segment, batch.head.sequence);
            self.put_back(batch.column);
        }
        if self.log.acknowledged() > self.log.durable() && self.log.flush().is_some() {
            if self.has_cache {
                actions.flush(Io::Flush);
            } else {
                self.log.flushed(0);
                self.log.end_flush();
            }
        }
        let each = self.flying.iter().flatten().map(|batch| batch.bytes);
        let flying = each.fold(0, usize::saturating_add);
        let waiting = self.open.as_ref().map_or(0, |open| open.body.bytes());
        if waiting >= flying {
            // Else one that ends begins it.
            let _ = self.close(&entry, (actions, crc));
        }
        self.go_on_with_dump(entry, (actions, crc));
    }

    fn segment_of(&self, place: u64) -> u32 {
        let from = place.saturating_sub(self.layout.segment(0));
        // CAST: A place is in a segment.
        from.checked_div(self.layout.segment_bytes())
            .unwrap_or_default() as u32
    }

    /// Returns a block with its tag, at its place, if it is in memory: it may not be on the device.
    pub fn at(&self, place: u64) -> Option<&[u8]> {
        let open = self.open.as_ref().and_then(|open| open.body.at(place));
        let flying = || {
            self.flying.iter().flatten().find_map(|batch| {
                let at = usize::try_from(place.checked_sub(batch.at)?).ok()?;
                let end = at.checked_add(TAGGED_BYTES)?;
                let column = batch.column.as_ref().get(..batch.bytes)?;
                column.get(at..end)
            })
        };
        open.or_else(flying)
    }
}
