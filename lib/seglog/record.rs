// SPDX-License-Identifier: GPL-2.0

//! Records, which are what a body consists of, and the entries that they assign.
//!
//! A record begins at a multiple of 16 bytes: a head of 24 bytes, its payload, zeroes to the next
//! multiple. A head of zeroes ends the body. One member IO reads a record, and its CRC proves it.

use zerocopy::{
    little_endian::{
        U16,
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
    batch::{
        copy,
        Head,
        HEAD_BYTES, //
    },
    layout::Layout,
    members::{
        column_of,
        DATA_COLUMNS,
        MEMBERS, //
    },
    table::Table,
    Checksum, //
};

/// The bytes of a record's head.
pub const RECORD_HEAD_BYTES: usize = 24;
/// Records begin at multiples of it.
pub const ALIGN_BYTES: usize = 16;
/// The bytes of the longest record, its head included.
pub const RECORD_BYTES_MAX: usize = LENGTH_MASK as usize * ALIGN_BYTES;
/// The entries that a record with a payload assigns at most.
pub const BLOCKS_MAX: u32 = 1 << BLOCK_BITS;
/// The entries that a record of zeroes assigns at most.
pub const ZEROES_MAX: u32 = 1 << 18;

const _: () = assert!(HEAD_BYTES % ALIGN_BYTES == 0);

const POSITION_BITS: u32 = 42;
const LENGTH_BITS: u32 = 11;
const BLOCK_BITS: u32 = 2;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;
const LENGTH_SHIFT: u32 = POSITION_BITS;
const BLOCK_SHIFT: u32 = LENGTH_SHIFT + LENGTH_BITS;
const COPY_SHIFT: u32 = BLOCK_SHIFT + BLOCK_BITS;
const COPY_BITS: u32 = 2;
const COPY_MASK: u64 = (1 << COPY_BITS) - 1;
const COUNT_SHIFT: u32 = COPY_SHIFT + COPY_BITS;

/// The codec of a record that has no payload: its blocks are zeroes. 0 is no codec; what others
/// mean the user of the log knows.
pub const CODEC_ZEROES: u8 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    crc: U32,
    payload_bytes: U16,
    codec: u8,
    skipped: u8,
    count: U32,
    /// The low bits of the batch's.
    sequence: U32,
    index: U64,
}
const _: () = assert!(size_of::<Wire>() == RECORD_HEAD_BYTES);

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The first entry that it assigns.
    pub index: u64,
    /// The number of entries that it assigns: up to [`BLOCKS_MAX`], or [`ZEROES_MAX`] without a
    /// payload.
    pub count: u32,
    /// The codec of the payload: [`CODEC_ZEROES`], or one of the user's.
    pub codec: u8,
    /// The bytes of the payload; 0 for zeroes only.
    pub payload_bytes: u16,
    /// The blocks of the payload that it does not assign, a bit for each: they were written
    /// again before the record was moved.
    pub skipped: u8,
}

/// A body has something else than records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Returns a bit for each block of a record with a payload.
const fn all_of(count: u32) -> u32 {
    match 1u32.checked_shl(count) {
        Some(next) => next.wrapping_sub(1),
        None => u32::MAX,
    }
}

impl Record {
    /// Returns the bytes of a record with a payload, its head included.
    pub const fn bytes_of(payload_bytes: usize) -> usize {
        payload_bytes.saturating_add(RECORD_HEAD_BYTES + ALIGN_BYTES - 1) & !(ALIGN_BYTES - 1)
    }

    /// Returns its bytes, its head included.
    pub const fn bytes(&self) -> usize {
        Self::bytes_of(self.payload_bytes as usize)
    }

    /// Whether it assigns one of its blocks.
    pub const fn assigns(&self, block: u32) -> bool {
        block >= BLOCKS_MAX || self.skipped >> block & 1 == 0
    }

    /// Whether it can be one of a table with this many entries.
    fn is_possible(&self, layout: &Layout) -> bool {
        let is_zeroes = self.codec == CODEC_ZEROES;
        let count_max = if is_zeroes { ZEROES_MAX } else { BLOCKS_MAX };
        let end = self.index.checked_add(self.count.into());
        self.codec != 0
            && is_zeroes == (self.payload_bytes == 0)
            && self.bytes() <= RECORD_BYTES_MAX
            && (1..=count_max).contains(&self.count)
            && (self.skipped == 0 || (!is_zeroes && u32::from(self.skipped) < all_of(self.count)))
            && end.is_some_and(|end| end <= layout.parts().entries)
    }

    /// Writes it at the start of `to`, of a batch with number `sequence`; returns its bytes. `None`
    /// if there is too little room, or it is not possible: nothing is written then.
    pub fn write(
        &self,
        to: &mut [u8],
        payload: &[u8],
        (layout, sequence): (&Layout, u64),
        crc: &impl Checksum,
    ) -> Option<usize> {
        let is_right = self.is_possible(layout) && payload.len() == usize::from(self.payload_bytes);
        let to = to.get_mut(..self.bytes()).filter(|_| is_right)?;
        let mut wire = Wire {
            crc: U32::ZERO,
            payload_bytes: U16::new(self.payload_bytes),
            codec: self.codec,
            skipped: self.skipped,
            count: U32::new(self.count),
            // CAST: The low bits.
            sequence: U32::new(sequence as u32),
            index: U64::new(self.index),
        };
        let end = RECORD_HEAD_BYTES.saturating_add(payload.len());
        to.get_mut(end..)?.fill(0);
        wire.write_to_prefix(to).ok()?;
        copy(to.get_mut(RECORD_HEAD_BYTES..end)?, payload);
        wire.crc = U32::new(crc.crc32c(to.get(size_of::<U32>()..end)?));
        wire.write_to_prefix(to).ok()?;
        Some(self.bytes())
    }

    /// Parses the record at the start of `bytes`, of a batch whose number has these low bits where
    /// it is known; `Ok(None)` if the body ends here.
    ///
    /// # Errors
    ///
    /// Returns that it is no record.
    pub fn parse<'a>(
        bytes: &'a [u8],
        (layout, sequence): (&Layout, Option<u32>),
        crc: &impl Checksum,
    ) -> Result<Option<(Self, &'a [u8])>, Malformed> {
        let Ok((wire, _)) = Wire::read_from_prefix(bytes) else {
            return if bytes.iter().all(|byte| *byte == 0) {
                Ok(None)
            } else {
                Err(Malformed)
            };
        };
        if wire.codec == 0 && bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Self::find(bytes, (layout, sequence), crc)
            .map(Some)
            .ok_or(Malformed)
    }

    /// Parses as [`Self::parse`] does where there may be none: what is behind this place is only
    /// looked at if there is one.
    pub fn find<'a>(
        bytes: &'a [u8],
        (layout, sequence): (&Layout, Option<u32>),
        crc: &impl Checksum,
    ) -> Option<(Self, &'a [u8])> {
        let (wire, _) = Wire::read_from_prefix(bytes).ok()?;
        let record = Self {
            index: wire.index.get(),
            count: wire.count.get(),
            codec: wire.codec,
            payload_bytes: wire.payload_bytes.get(),
            skipped: wire.skipped,
        };
        let end = RECORD_HEAD_BYTES.saturating_add(wire.payload_bytes.get().into());
        let covered = bytes.get(size_of::<U32>()..end)?;
        let is_right = record.is_possible(layout)
            && sequence.is_none_or(|low| low == wire.sequence.get())
            && crc.crc32c(covered) == wire.crc.get();
        let payload = bytes.get(RECORD_HEAD_BYTES..end).filter(|_| is_right)?;
        Some((record, payload))
    }
}

/// Whether a record that was parsed is of batch `first` or a later one, by the low bits.
pub fn is_since(bytes: &[u8], first: u64) -> bool {
    let Ok((wire, _)) = Wire::read_from_prefix(bytes) else {
        return false;
    };
    // CAST: The low bits.
    let later = wire.sequence.get().wrapping_sub(first as u32);
    later <= u32::MAX / 2
}

/// An entry of the table: where the record of a block is.
///
/// Bits 0 to 41 are the position in units of 16 bytes, counted over all data columns; 42 to 52 the
/// bytes of the record in the same units; 53 and 54 which of its blocks this one is; 55 and 56 the
/// column that has a copy, and 1, or 0 where the other columns rebuild it; 57 and 58 how many
/// blocks it has beside one. 0 stands for zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry(u64);

/// The place of a block's record, as an entry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spot {
    /// The segment.
    pub segment: u32,
    /// The data column.
    pub column: usize,
    /// The byte in the segment's column.
    pub offset: u64,
    /// The bytes of the record, its head included.
    pub bytes: usize,
    /// The number of the block in the record; the first one has 0.
    pub block: u32,
    /// Number of blocks of the record.
    pub blocks: u32,
    /// The column that has a copy.
    pub copy: Option<usize>,
}

impl Spot {
    /// Returns the bytes of the record that are this block's share.
    pub fn share_bytes(&self) -> u64 {
        let last = (self.bytes as u64).saturating_add(self.blocks.saturating_sub(1).into());
        last.checked_div(self.blocks.into()).unwrap_or_default()
    }

    /// Parses what was read of the record, from its first byte; returns it with its payload if it
    /// is the one that has the entries from `index` on, `count` of them.
    pub fn record<'a>(
        &self,
        (index, count): (u64, u32),
        bytes: &'a [u8],
        layout: &Layout,
        crc: &impl Checksum,
    ) -> Option<(Record, &'a [u8])> {
        let found = Record::parse(bytes, (layout, None), crc);
        let (record, payload) = found.ok().flatten()?;
        let first = record.index.checked_add(self.block.into());
        let end = self.block.saturating_add(count);
        let is_it = first == Some(index) && end <= record.count && !payload.is_empty();
        is_it.then_some((record, payload))
    }
}

impl Entry {
    /// The entry of a block of zeroes.
    pub const ZEROES: Self = Self(0);

    /// Returns that of a word, which [`Self::spot`] checks.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns its word, as the table has it on a member.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns what it says; `None` for zeroes.
    ///
    /// # Errors
    ///
    /// Returns that no record can be there.
    pub fn spot(self, layout: &Layout) -> Result<Option<Spot>, Malformed> {
        if self == Self::ZEROES {
            return Ok(None);
        }
        let position = (self.0 & POSITION_MASK).saturating_mul(ALIGN_BYTES as u64);
        // The size of a segment is not 0.
        let of_column = layout.segment_bytes().max(1);
        let (columns, offset) = (position / of_column, position % of_column);
        // CAST: At most 3.
        let copy = (self.0 >> COPY_SHIFT & COPY_MASK) as usize;
        let more = self.0 >> COUNT_SHIFT & BLOCK_MASK;
        let spot = Spot {
            segment: u32::try_from(columns / DATA_COLUMNS as u64).map_err(|_| Malformed)?,
            // CAST: Below DATA_COLUMNS.
            column: (columns % DATA_COLUMNS as u64) as usize,
            offset,
            bytes: (((self.0 >> LENGTH_SHIFT) & LENGTH_MASK) as usize).saturating_mul(ALIGN_BYTES),
            block: ((self.0 >> BLOCK_SHIFT) & BLOCK_MASK) as u32,
            // CAST: At most 3.
            blocks: (more as u32).saturating_add(1),
            copy: copy.checked_sub(1),
        };
        let end = offset.saturating_add(spot.bytes as u64);
        let is_possible = spot.segment < layout.parts().segments
            && spot.bytes >= RECORD_HEAD_BYTES
            && offset >= HEAD_BYTES as u64
            && end <= of_column
            && copy <= MEMBERS
            && spot.copy != Some(spot.column)
            && spot.block < spot.blocks
            && self.0 >> COUNT_SHIFT >> BLOCK_BITS == 0;
        if is_possible {
            Ok(Some(spot))
        } else {
            Err(Malformed)
        }
    }

    /// Returns the entry of the first block of the record at a byte of a data column of a batch.
    pub fn of(head: &Head, column: usize, at: usize, record: &Record, layout: &Layout) -> Self {
        if record.payload_bytes == 0 {
            return Self::ZEROES;
        }
        let columns = u64::from(head.place.segment)
            .saturating_mul(DATA_COLUMNS as u64)
            .saturating_add(column as u64);
        let unit = u64::from(head.place.unit).saturating_mul(layout.unit_bytes() as u64);
        let position = columns.saturating_mul(layout.segment_bytes());
        let position = position.saturating_add(unit).saturating_add(at as u64);
        let align = ALIGN_BYTES as u64;
        let copy = match head.kind {
            super::batch::Kind::Striped => 0,
            super::batch::Kind::Mirror => {
                let columns = head.used.iter().map(|m| column_of(head.place.segment, m));
                columns.max().unwrap_or_default().saturating_add(1)
            }
        };
        Self(
            ((position / align) & POSITION_MASK)
                | ((record.bytes() as u64 / align) & LENGTH_MASK) << LENGTH_SHIFT
                | (copy as u64) << COPY_SHIFT
                | u64::from(record.count.saturating_sub(1)) << COUNT_SHIFT,
        )
    }

    /// Returns that of another block of the same record.
    pub fn with_block(self, block: u32) -> Self {
        if self == Self::ZEROES {
            return self;
        }
        Self(self.0 | (u64::from(block) & BLOCK_MASK) << BLOCK_SHIFT)
    }
}

/// The records of a data column of a batch.
pub struct Records<'a, C> {
    /// The column, its head included.
    bytes: &'a [u8],
    at: usize,
    layout: &'a Layout,
    sequence: u32,
    crc: &'a C,
}

impl<'a, C: Checksum> Records<'a, C> {
    /// Goes through them; `bytes` is the column, its head included.
    pub fn new(head: &Head, bytes: &'a [u8], layout: &'a Layout, crc: &'a C) -> Self {
        Self {
            bytes,
            at: HEAD_BYTES,
            layout,
            // CAST: The low bits.
            sequence: head.sequence as u32,
            crc,
        }
    }
}

impl<'a, C: Checksum> Iterator for Records<'a, C> {
    /// The byte of the column at which it begins, the record, its payload.
    type Item = Result<(usize, Record, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (bytes, at) = (self.bytes, self.at);
        let from = bytes.get(at..).unwrap_or_default();
        match Record::parse(from, (self.layout, Some(self.sequence)), self.crc) {
            Ok(found) => found.map(|(record, payload)| {
                self.at = at.saturating_add(record.bytes());
                Ok((at, record, payload))
            }),
            Err(malformed) => {
                self.at = bytes.len();
                Some(Err(malformed))
            }
        }
    }
}

/// Assigns the entries of all records of a data column; `bytes` is the column, its head included.
///
/// # Errors
///
/// Returns that the body has something else than records, though its CRC fits: it was not written
/// by this code, or its user has broken a rule.
pub fn assign(
    table: &mut impl Table,
    (head, column): (&Head, usize),
    bytes: &[u8],
    layout: &Layout,
    crc: &impl Checksum,
) -> Result<(), Malformed> {
    for found in Records::new(head, bytes, layout, crc) {
        let (at, record, _) = found?;
        let entry = Entry::of(head, column, at, &record, layout);
        for block in (0..record.count).filter(|block| record.assigns(*block)) {
            // It is possible, so the sum is the index of an entry.
            let index = record.index.saturating_add(block.into());
            table.set(index, entry.with_block(block).word());
        }
    }
    Ok(())
}
