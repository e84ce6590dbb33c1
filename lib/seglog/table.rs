// SPDX-License-Identifier: GPL-2.0

//! The table on the members: pages of words, of which each is on two members.
//!
//! Words are the entries of blocks, then one for each segment. A dump writes all pages to the area
//! whose turn it is, while batches go on: an entry is an absolute assignment, so a log that is
//! followed from the start which was noted before gives the same table, of however many later
//! batches a page knew. Two copies of a page cost less than parity where few pages of a row have
//! changed, and one read gives a page that proves itself.

use core::ops::Range;

use zerocopy::{
    little_endian::{
        U32,
        U64, //
    },
    FromBytes,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    batch::Head,
    epoch::GIVEN_UP_MAX,
    layout::{
        Layout,
        AREAS,
        PAGE_HEAD_BYTES,
        WORD_BYTES, //
    },
    log::Log,
    members::{
        Members,
        MEMBERS, //
    },
    superblock::{
        Start,
        NUMBER_MAX, //
    },
    ArrayTag,
    Checksum, //
};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    crc: U32,
    index: U32,
    generation: U64,
}
const _: () = assert!(size_of::<Wire>() == PAGE_HEAD_BYTES);

/// The words of a table, in memory.
pub trait Table {
    /// Returns a word; 0 beyond the last one.
    fn word(&self, index: u64) -> u64;
    /// Sets a word. `index` is below [`Layout::words`].
    fn set(&mut self, index: u64, word: u64);
}

/// The use of a segment, as its word has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SegmentUse {
    /// Its number; 0 if the segment was never written.
    pub sequence: u64,
    /// The members that have its columns.
    pub members: Members,
}

const MEMBER_BITS: u32 = 8;
/// The highest number of a segment's use. A word has room for twice as much.
pub const SEGMENT_SEQUENCE_MAX: u64 = (1 << 55) - 1;

impl SegmentUse {
    /// Returns that of a word; `None` if a bit stands for no member.
    pub const fn from_word(word: u64) -> Option<Self> {
        // CAST: The low bits.
        match Members::from_bits(word as u8) {
            Some(members) => Some(Self {
                sequence: word >> MEMBER_BITS,
                members,
            }),
            None => None,
        }
    }

    /// Returns its word.
    pub const fn word(self) -> u64 {
        self.sequence << MEMBER_BITS | self.members.bits() as u64
    }

    /// Returns the use when a batch of use number `sequence` is on these members: those of all its
    /// batches have its columns.
    pub fn with(self, sequence: u64, members: Members) -> Self {
        let before = if self.sequence == sequence {
            self.members
        } else {
            Members::ALL
        };
        Self {
            sequence,
            members: before.and(members),
        }
    }
}

/// A batch of a segment is on `members`.
pub fn note_batch(table: &mut impl Table, head: &Head, members: Members, layout: &Layout) {
    let index = layout
        .parts()
        .entries
        .saturating_add(head.place.segment.into());
    let known = SegmentUse::from_word(table.word(index)).unwrap_or_default();
    table.set(index, known.with(head.segment_sequence, members).word());
}

/// Members do not have the columns of some uses of segments.
pub fn lose(table: &mut impl Table, members: Members, uses: Range<u64>, layout: &Layout) {
    for index in layout.parts().entries..layout.words() {
        let known = SegmentUse::from_word(table.word(index)).unwrap_or_default();
        if uses.contains(&known.sequence) && !known.members.and(members).is_empty() {
            let members = known.members.minus(members);
            table.set(index, SegmentUse { members, ..known }.word());
        }
    }
}

/// Returns the members that have a page.
pub fn page_members(page: u64) -> Members {
    let first = (page % MEMBERS as u64) as usize;
    Members::of(first).or(Members::of(first.saturating_add(1) % MEMBERS))
}

/// Returns the words that a page has.
pub fn page_words(page: u64, layout: &Layout) -> Range<u64> {
    let words = layout.page_words() as u64;
    let start = page.saturating_mul(words);
    start..start.saturating_add(words).min(layout.words())
}

/// Makes a page, as long as `to`, from the table.
pub fn write_page(
    to: &mut [u8],
    (page, generation): (u64, u64),
    table: &impl Table,
    (layout, tag): (&Layout, ArrayTag),
    crc: &impl Checksum,
) {
    to.fill(0);
    let mut words = to.get_mut(PAGE_HEAD_BYTES..).unwrap_or_default();
    for index in page_words(page, layout) {
        let Some((to, rest)) = words.split_first_chunk_mut::<WORD_BYTES>() else {
            break;
        };
        *to = table.word(index).to_le_bytes();
        words = rest;
    }
    let mut wire = Wire {
        crc: U32::ZERO,
        // CAST: The low bits.
        index: U32::new(page as u32),
        generation: U64::new(generation),
    };
    // A page is longer than its head.
    let _ = wire.write_to_prefix(to);
    wire.crc = U32::new(page_crc(to, tag, crc));
    let _ = wire.write_to_prefix(to);
}

/// The CRC of a page, without the field that has it, and bound to the array.
fn page_crc(page: &[u8], tag: ArrayTag, crc: &impl Checksum) -> u32 {
    let covered = page.get(size_of::<U32>()..).unwrap_or_default();
    let tag = tag.0 ^ tag.0 >> 32;
    // CAST: Both halves of the tag are in the low one.
    crc.crc32c(covered) ^ tag as u32
}

/// Sets the words of a page of the dump that `start` names; returns whether it is one.
pub fn read_page(
    bytes: &[u8],
    (page, start): (u64, &Start),
    table: &mut impl Table,
    (layout, tag): (&Layout, ArrayTag),
    crc: &impl Checksum,
) -> bool {
    let Ok((wire, words)) = Wire::read_from_prefix(bytes) else {
        return false;
    };
    let is_right = wire.crc.get() == page_crc(bytes, tag, crc)
        && u64::from(wire.index.get()) == page
        && wire.generation.get() == start.generation;
    if is_right {
        let mut words = words;
        for index in page_words(page, layout) {
            let Some((from, rest)) = words.split_first_chunk::<WORD_BYTES>() else {
                break;
            };
            table.set(index, u64::from_le_bytes(*from));
            words = rest;
        }
    }
    is_right
}

/// The next step of a dump. All IO of a step has ended before the next one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a page to the members that have it and are written, made from the table as it is now.
    Page(u64),
    /// Flush all members that are written.
    Flush,
    /// Write the superblocks of all members that are written, with FUA and this start.
    Superblocks(Start),
    /// Nothing: the start is that of the superblocks.
    Done,
}

/// The dumps that are left out, as a power of two, for each time that force may have given some up:
/// slots may show those again, and pages in their areas have none of their numbers then.
const DUMPS_GIVEN_UP_BITS: u32 = 32;

/// Returns the least number that a dump of an incarnation has.
fn generation_min(incarnation: u64) -> u64 {
    let times = incarnation / GIVEN_UP_MAX;
    times.min(NUMBER_MAX >> (DUMPS_GIVEN_UP_BITS + 1)) << DUMPS_GIVEN_UP_BITS
}

/// A dump of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dump {
    start: Start,
    next: u64,
}

impl Dump {
    /// Begins the dump after the one that `last` names. What is not acknowledged is not in the
    /// table: the log will be followed from there.
    pub fn begin(log: &Log, last: &Start) -> Self {
        let next = last.generation.saturating_add(1);
        // In the area whose turn it is.
        let least = generation_min(log.cursor().incarnation);
        let generation = next.max(least.saturating_add(next % u64::from(AREAS)));
        Self {
            start: Start {
                generation,
                // CAST: Below AREAS.
                area: (generation % u64::from(AREAS)) as u8,
                cursor: log.oldest(),
            },
            next: 0,
        }
    }

    /// Returns the start that the superblocks have when it is done.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Returns the area that it is written to.
    pub fn area(&self) -> u8 {
        self.start.area
    }

    /// Returns the number that its pages have.
    pub fn generation(&self) -> u64 {
        self.start.generation
    }

    /// A member has failed: the pages may say that it has what was in its cache. They are written
    /// again, unless it was flushed before.
    pub fn member_failed(&mut self, layout: &Layout) {
        if self.next <= layout.pages().saturating_add(1) {
            self.next = 0;
        }
    }

    /// Returns the next step.
    pub fn step(&mut self, layout: &Layout) -> Step {
        let done = self.next.saturating_sub(layout.pages());
        let step = match done {
            0 if self.next < layout.pages() => Step::Page(self.next),
            0 => Step::Flush,
            1 => Step::Superblocks(self.start),
            _ => return Step::Done,
        };
        self.next = self.next.saturating_add(1);
        step
    }
}
