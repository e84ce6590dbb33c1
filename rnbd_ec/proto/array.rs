// SPDX-License-Identifier: GPL-2.0

//! An array that is open.
//!
//! Its user calls under one lock: it tells what has ended, and then lets the array [`settle`]: what
//! follows by itself is begun by [`Actions`], and batches and flushes that are acknowledged are
//! told. Nothing here waits.
//!
//! [`settle`]: Array::settle

mod batches;
mod dumping;
mod free;
mod looking;
mod members;
mod news;
mod room;

use seglog::{
    batch::Head,
    collect::Purpose,
    epoch::Epoch,
    free::Free,
    layout::Layout,
    log::{
        Log,
        WINDOW, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    recovery::Opened,
    resync::Resync,
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Start,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    table::{
        Dump,
        Table, //
    },
    ArrayTag,
    Checksum, //
};

use super::{
    budget::Budget,
    geometry::held_bytes,
    packing::Packed, //
};

use self::room::Fruitless;
pub(super) use self::room::CLOSED_MAX;
pub use self::{
    batches::Begun,
    looking::{
        Found,
        Looked, //
    },
    members::{
        is_silent,
        NotNow, //
    },
    news::{
        Event,
        News,
        State,
        View, //
    },
    room::{
        Need,
        Repair, //
    },
};

/// The memory of an array, which its user allocates when it is assembled.
pub trait Memory {
    /// The table.
    type Words: Table;
    /// The segments, as many as the layout has.
    type Segments: AsRef<[Segment]> + AsMut<[Segment]>;
    /// The records of batches in flight: [`PACKED`].
    type Packed: AsRef<[Packed]> + AsMut<[Packed]>;
}

/// The elements of [`Memory::Packed`].
pub const PACKED: usize = WINDOW * super::packing::RECORDS_MAX;

/// An IO of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Io {
    /// The write of a column of the batch with this number.
    Column(u64),
    /// A flush of what is acknowledged.
    Flush,
    /// The write of a superblock, with FUA.
    Superblock,
    /// The write of a page of the table.
    Page,
    /// The flush behind the pages of a dump.
    DumpFlush,
}

/// Carries out what an array begins, and hears what it tells. None of them waits.
pub trait Actions {
    /// Begins to write a superblock, with FUA.
    fn write_superblock(&mut self, member: usize, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]);
    /// Returns the memory of the page that is written next; that of the one before is not in use.
    fn page(&mut self) -> &mut [u8];
    /// Begins to write that page.
    fn write_page(&mut self, member: usize, at: u64);
    /// Begins a flush: `io` is [`Io::Flush`] or [`Io::DumpFlush`].
    fn flush(&mut self, member: usize, io: Io);
    /// Returns a random number that is not 0.
    fn random(&mut self) -> u64;
    /// The batch in a slot is acknowledged.
    fn acknowledged(&mut self, slot: usize);
    /// The flush in flight has ended well.
    fn flushed(&mut self);
    /// Members have failed, and an epoch says so on the others.
    fn failed(&mut self, members: Members);
    /// A member is in sync again.
    fn joined(&mut self, member: usize);
}

/// A batch in flight. Its slot is its place in the list.
#[derive(Clone, Copy, Debug)]
struct Batch {
    head: Head,
    records: usize,
    purpose: Purpose,
}

/// An array that is open.
pub struct Array<M: Memory> {
    layout: Layout,
    tag: ArrayTag,
    words: M::Words,
    segments: Segments<M::Segments>,
    packed: M::Packed,
    log: Log,
    superblocks: [Option<Superblock>; MEMBERS],
    epoch: Epoch,
    /// Start that the superblocks of all members that live say.
    start: Start,
    batches: [Option<Batch>; WINDOW],
    /// IOs that have not ended, also of members that have failed.
    ios: [u32; MEMBERS],
    /// The members whose superblock is being written.
    superblocks_pending: Members,
    /// An epoch without those that have failed is being written.
    epoch_begun: Option<Members>,
    dump: Option<Dump>,
    /// The members to which a dump writes, or which it flushes.
    dump_pending: Members,
    /// A member is told, with the others, that it is written from now on.
    telling: Option<usize>,
    /// A member that was taken away by hand, and does not return by itself.
    kept_out: Option<usize>,
    resync: Option<Resync>,
    /// Segments of which a member has not given what was written, and the numbers of their uses:
    /// one that can be moved, and one that is still written.
    damaged: [Option<(u32, u64)>; 2],
    repairs: Budget,
    /// The segment that is collected.
    collecting: Option<u32>,
    fruitless: Option<Fruitless>,
    free: Free,
    /// Segments are few: some are to be collected.
    is_low: bool,
    /// The live bytes that there is always room for, if the disk promises more.
    held_bytes: Option<u64>,
}

impl<M: Memory> Array<M> {
    /// Makes an array of the result of an assembly.
    pub fn new(
        (layout, tag): (Layout, ArrayTag),
        opened: Opened,
        (words, segments, packed): (M::Words, Segments<M::Segments>, M::Packed),
    ) -> Self {
        Self {
            layout,
            tag,
            words,
            segments,
            packed,
            log: opened.log,
            superblocks: opened.superblocks,
            epoch: opened.epoch,
            start: opened.start,
            batches: [None; WINDOW],
            ios: [0; MEMBERS],
            superblocks_pending: Members::NONE,
            epoch_begun: None,
            dump: None,
            dump_pending: Members::NONE,
            telling: None,
            kept_out: None,
            resync: None,
            damaged: [None; 2],
            repairs: Budget::default(),
            collecting: None,
            fruitless: None,
            free: Free::default(),
            is_low: true,
            held_bytes: held_bytes(&layout),
        }
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns what its batches have.
    pub fn tag(&self) -> ArrayTag {
        self.tag
    }

    /// Returns the members in sync.
    pub fn live(&self) -> Members {
        self.log.live()
    }

    /// Returns the members that are written and not in sync yet, and one that is told so.
    pub fn returning(&self) -> Members {
        let told = self.telling.map_or(Members::NONE, Members::of);
        self.log.written_members().or(told).minus(self.log.live())
    }

    /// Whether too few members live for anything to be written.
    pub fn is_stopped(&self) -> bool {
        self.log.live().count() < seglog::members::DATA_COLUMNS
    }

    /// Returns how many IOs of a member have not ended.
    pub fn ios(&self, member: usize) -> u32 {
        self.ios.get(member).copied().unwrap_or_default()
    }

    /// Counts an IO that begins.
    fn begin_io(&mut self, member: usize) {
        if let Some(ios) = self.ios.get_mut(member) {
            *ios = ios.saturating_add(1);
        }
    }

    /// An IO has ended. [`Self::settle`] is to be called before the lock is left.
    pub fn ended(&mut self, io: Io, member: usize, is_well: bool) {
        if let Some(ios) = self.ios.get_mut(member) {
            *ios = ios.saturating_sub(1);
        }
        if !is_well {
            return self.fail(member);
        }
        let this = Members::of(member);
        match io {
            Io::Column(sequence) => self.log.written(sequence, member),
            Io::Flush => self.log.flushed(member),
            Io::Superblock => self.superblocks_pending = self.superblocks_pending.minus(this),
            Io::Page | Io::DumpFlush => self.dump_pending = self.dump_pending.minus(this),
        }
    }

    /// Does what follows by itself.
    pub fn settle(&mut self, actions: &mut impl Actions, crc: &impl Checksum) {
        self.go_on_with_epoch(actions, crc);
        self.acknowledge(actions);
        if self.log.end_flush().is_some() {
            actions.flushed();
        }
        self.go_on_with_dump(actions, crc);
        self.go_on_with_return(actions, crc);
        // It may need one that begins now.
        self.go_on_with_dump(actions, crc);
    }

    /// Begins a flush of what is acknowledged; whether it has begun. If not, one is in flight, or
    /// an epoch has to be written first.
    pub fn flush(&mut self, actions: &mut impl Actions) -> bool {
        let Some(members) = self.log.flush() else {
            return false;
        };
        for member in members.iter() {
            self.begin_io(member);
            actions.flush(member, Io::Flush);
        }
        true
    }

    /// Whether no batch and no dump is in flight.
    pub fn is_idle(&self) -> bool {
        self.batches.iter().all(Option::is_none) && self.dump.is_none()
    }

    /// Whether all that is acknowledged is durable, and the next assembly has nothing to follow.
    pub fn is_clean(&self) -> bool {
        self.batches.iter().all(Option::is_none)
            && self.log.durable() >= self.log.acknowledged()
            && !self.dump_helps()
    }
}
