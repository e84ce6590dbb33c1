// SPDX-License-Identifier: GPL-2.0

//! The sectors of a PI block that are written back: those with tuples that have changed.

use core::ops::Range;

use super::{
    group::Index,
    record::Unit,
    tuple::TUPLE_BYTES,
    BLOCK_BYTES, //
};

/// The bytes of a sector. A tuple is in one.
const SECTOR_BYTES: usize = 512;
const SECTORS: u8 = (BLOCK_BYTES / SECTOR_BYTES) as u8;
const _: () = assert!(SECTORS as u32 == u8::BITS && SECTOR_BYTES % TUPLE_BYTES == 0);

/// A set of sectors of a PI block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sectors(u8);

impl Sectors {
    /// The set of all sectors of a block.
    pub const ALL: Self = Self(u8::MAX);

    /// Adds the one with the tuple at a place.
    pub fn add(&mut self, index: Index) {
        self.0 |= 1 << (usize::from(index) * TUPLE_BYTES / SECTOR_BYTES);
    }

    /// Returns the smallest part with all of them that a device writes which has this unit; of none
    /// it is the whole block.
    pub fn part(self, unit: Unit) -> Part {
        if self.0 == 0 || !unit.fits_sectors() {
            return Part::WHOLE;
        }
        // INVARIANT: There is one. CAST: At most 8.
        Part {
            first: self.0.trailing_zeros() as u8,
            end: SECTORS.saturating_sub(self.0.leading_zeros() as u8),
        }
    }
}

/// A part of a PI block: whole sectors.
///
/// # Invariants
///
/// `first` is below `end`, which is at most [`SECTORS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    first: u8,
    end: u8,
}

impl Part {
    /// The whole block.
    pub const WHOLE: Self = Self {
        first: 0,
        end: SECTORS,
    };

    /// Returns the first sector, counted from the start of the block.
    pub fn first_sector(self) -> u64 {
        self.first.into()
    }

    /// Returns the bytes in the block.
    pub fn bytes(self) -> Range<usize> {
        let place = |sector: u8| usize::from(sector).saturating_mul(SECTOR_BYTES);
        place(self.first)..place(self.end)
    }
}
