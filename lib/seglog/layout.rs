// SPDX-License-Identifier: GPL-2.0

//! The layout of a member: the places of the superblock, the table and the segments.

use core::fmt;

use super::{
    collect::RESERVE_MIN,
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    table::page_members, //
};

/// The bytes from one slot of the superblock to the next one.
pub const SLOT_BYTES: u64 = 4096;
/// The slots of the superblock.
pub const SLOTS: u8 = 2;
/// The areas of the table.
pub const AREAS: u8 = 2;
/// The bytes of the longest column of a batch.
pub const COLUMN_BYTES_MAX: usize = 120 << 10;
/// The fewest segments: one that is written, the next one, those that writes leave free, and some
/// to choose from.
pub const SEGMENTS_MIN: u32 = RESERVE_MIN + 5;
/// The bytes of a page's head.
pub const PAGE_HEAD_BYTES: usize = 16;
/// The bytes of a word of the table.
pub const WORD_BYTES: usize = 8;

const UNIT_BYTES: core::ops::RangeInclusive<u32> = 128..=4096;
const PAGE_BYTES_MAX: u32 = 4096;
const SEGMENT_UNITS: core::ops::RangeInclusive<u32> = 2..=1 << 16;
/// The bytes that an entry can name: 42 bits of 16 bytes.
const DATA_BYTES_MAX: u64 = 1 << 46;
const ENTRIES_MAX: u64 = 1 << 40;

/// The numbers that a layout is made of, as a superblock has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    /// The bytes that a member writes without reading: a power of two from 128 to 4096.
    pub unit_bytes: u32,
    /// The units of a segment on each member: 2 to 65536.
    pub segment_units: u32,
    /// The segments: at least [`SEGMENTS_MIN`].
    pub segments: u32,
    /// The bytes of a page of the table: a power of two up to 4096, of whole units.
    pub page_bytes: u32,
    /// The entries of the table: one for each block of the array, 1 to 2^40.
    pub entries: u64,
}

/// The number for which there is no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The unit.
    Unit(u32),
    /// The units of a segment.
    SegmentUnits(u32),
    /// The number of segments.
    Segments(u32),
    /// The size of a page.
    Page(u32),
    /// The number of entries.
    Entries(u64),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(n) => write!(f, "its unit has {n} bytes"),
            Self::SegmentUnits(n) => write!(f, "its segments have {n} units"),
            Self::Segments(n) => write!(f, "it has {n} segments"),
            Self::Page(n) => write!(f, "its table's pages have {n} bytes"),
            Self::Entries(n) => write!(f, "its table has {n} entries"),
        }
    }
}

/// A place in the log: a unit of a segment, the same on each member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The segment.
    pub segment: u32,
    /// The unit in it.
    pub unit: u32,
}

/// A layout that is possible: of an array, or of a log on one member.
///
/// On one member there is no parity. All batches are mirrors, of one copy, and the members that
/// there are not have failed, in each epoch.
///
/// # Invariants
///
/// The parts are in their ranges, and no offset on a member is beyond 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    parts: Parts,
    /// Whether it is of one member.
    is_single: bool,
}

impl Layout {
    /// Checks the parts.
    ///
    /// # Errors
    ///
    /// Returns the number that is not possible.
    pub fn new(parts: Parts) -> Result<Self, Misfit> {
        Self::of(parts, false)
    }

    /// Checks the parts of a log on one member.
    ///
    /// # Errors
    ///
    /// Returns the number that is not possible.
    pub fn single(parts: Parts) -> Result<Self, Misfit> {
        Self::of(parts, true)
    }

    fn of(parts: Parts, is_single: bool) -> Result<Self, Misfit> {
        let is_power = |n: u32, range: &core::ops::RangeInclusive<u32>| {
            n.is_power_of_two() && range.contains(&n)
        };
        if !is_power(parts.unit_bytes, &UNIT_BYTES) {
            return Err(Misfit::Unit(parts.unit_bytes));
        }
        if !SEGMENT_UNITS.contains(&parts.segment_units) {
            return Err(Misfit::SegmentUnits(parts.segment_units));
        }
        if !is_power(parts.page_bytes, &(parts.unit_bytes..=PAGE_BYTES_MAX)) {
            return Err(Misfit::Page(parts.page_bytes));
        }
        if parts.entries == 0 || parts.entries > ENTRIES_MAX {
            return Err(Misfit::Entries(parts.entries));
        }
        // At most 2^12 * 2^16 * 2^32 * 2.
        let data_bytes = u64::from(parts.unit_bytes)
            .saturating_mul(parts.segment_units.into())
            .saturating_mul(parts.segments.into())
            .saturating_mul(if is_single { 1 } else { DATA_COLUMNS as u64 });
        if parts.segments < SEGMENTS_MIN || data_bytes > DATA_BYTES_MAX {
            return Err(Misfit::Segments(parts.segments));
        }
        // INVARIANT: The table has at most 2^40 + 2^32 words, in pages of at least 14 words.
        Ok(Self { parts, is_single })
    }

    /// Whether it is of one member.
    pub const fn is_single(&self) -> bool {
        self.is_single
    }

    /// Returns the members.
    pub const fn members(&self) -> Members {
        if self.is_single {
            Members::of(0)
        } else {
            Members::ALL
        }
    }

    /// Returns the fewest members that are written, and in sync: those that have a batch whole.
    pub const fn members_needed(&self) -> usize {
        if self.is_single {
            1
        } else {
            DATA_COLUMNS
        }
    }

    /// Returns how many data columns and members there are.
    pub(crate) const fn shape(&self) -> (usize, usize) {
        if self.is_single {
            (1, 1)
        } else {
            (DATA_COLUMNS, MEMBERS)
        }
    }

    /// Returns the members that have a page of the table.
    pub fn page_members(&self, page: u64) -> Members {
        if self.is_single {
            self.members()
        } else {
            page_members(page)
        }
    }

    /// Returns the parts.
    pub const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Returns the bytes of a unit.
    pub const fn unit_bytes(&self) -> usize {
        self.parts.unit_bytes as usize
    }

    /// Returns the bytes of a segment on a member.
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.parts.unit_bytes).saturating_mul(self.parts.segment_units.into())
    }

    /// Returns the units of the longest column of a batch.
    pub fn column_units_max(&self) -> u32 {
        let most = (COLUMN_BYTES_MAX as u32).checked_div(self.parts.unit_bytes);
        most.unwrap_or_default().min(self.parts.segment_units)
    }

    /// Returns the words of the table: the entries, and one for each segment.
    pub fn words(&self) -> u64 {
        self.parts
            .entries
            .saturating_add(self.parts.segments.into())
    }

    /// Returns the words of a page of the table.
    pub fn page_words(&self) -> usize {
        (self.parts.page_bytes as usize).saturating_sub(PAGE_HEAD_BYTES) / WORD_BYTES
    }

    /// Returns the pages of the table.
    pub fn pages(&self) -> u64 {
        let of_page = self.page_words() as u64;
        let last = self.words().saturating_add(of_page.saturating_sub(1));
        last.checked_div(of_page).unwrap_or_default()
    }

    /// Returns where a slot of the superblock begins on a member, in bytes.
    pub fn slot(slot: u8) -> u64 {
        u64::from(slot % SLOTS).saturating_mul(SLOT_BYTES)
    }

    /// Returns where a page of an area begins on a member, in bytes.
    pub fn page(&self, area: u8, page: u64) -> u64 {
        let pages = u64::from(area % AREAS).saturating_mul(self.pages());
        let bytes = pages
            .saturating_add(page)
            .saturating_mul(self.parts.page_bytes.into());
        u64::from(SLOTS)
            .saturating_mul(SLOT_BYTES)
            .saturating_add(bytes)
    }

    /// Returns where a segment begins on a member, in bytes.
    pub fn segment(&self, segment: u32) -> u64 {
        let end = self.page(AREAS - 1, self.pages());
        let first = end.saturating_add(SLOT_BYTES - 1) & !(SLOT_BYTES - 1);
        first.saturating_add(self.segment_bytes().saturating_mul(segment.into()))
    }

    /// Returns where a place is on a member, in bytes; `None` if it is in no segment.
    pub fn at(&self, place: Place) -> Option<u64> {
        let is_there = place.segment < self.parts.segments && place.unit < self.parts.segment_units;
        let bytes = u64::from(place.unit).saturating_mul(self.parts.unit_bytes.into());
        is_there.then(|| self.segment(place.segment).saturating_add(bytes))
    }

    /// Returns the bytes that a member must have.
    pub fn end_bytes(&self) -> u64 {
        self.segment(self.parts.segments)
    }
}
