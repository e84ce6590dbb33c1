// SPDX-License-Identifier: GPL-2.0

//! A record of the journal: blocks whose data are about to change, with their tuples before and
//! after.
//!
//! A record has as many [units](Unit) as it needs, from the start of its slot on, and is valid
//! whole or not at all: its CRC stands at its end, and covers everything before. What is behind it
//! in the slot is not written: an older, longer record has left it. `tail` is the lowest sequence
//! number that a replay needs, `flushed` the lowest one whose data may still be older ones.
//! `device_blocks` is the size of the device: a superblock of a smaller one is from before a
//! growth.
//!
//! A device writes each sector whole or not at all. So a slot whose write was torn has some sectors
//! of the new record, and in the others what was there before: of the record before it, or of
//! older ones behind its end. The first sector says which record counts, and how long it is:
//!
//! - The old one: if the other sectors of the old record are as they were, it is valid, and whole.
//!   Otherwise its CRC, or what stands in place of that, is not the one of the mixture.
//! - The new one: what stood in the place of its CRC before belongs to another content, as the
//!   sequence number is in the first sector. (A record that was torn leaves its number to the mark
//!   of the replay, which has no entries.) So if the record is valid its last sector is new, and
//!   with it all those between.
//!
//! That two contents have the same CRC64 is left to chance: 1 in 2^64 for each torn record. A
//! record of one sector cannot be torn.

use zerocopy::{
    little_endian::{
        U16,
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
    group::{
        self,
        GROUP_BLOCKS, //
    },
    layout::Layout,
    tuple::{
        Meaning,
        Seal,
        Tuple,
        REFERENCE_BITS, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

/// The maximum number of entries of a record.
pub const ENTRIES_MAX: usize = 100;

/// The unit of a record's length, and of the parts of a PI block that are written back, in bytes.
///
/// # Invariants
///
/// It is a power of two from 64 to [`BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit(usize);

impl Unit {
    /// Records are whole sectors of 512 bytes: 11 entries fit in one.
    pub const SECTOR: Self = Self(512);
    /// Records are whole blocks.
    pub const BLOCK: Self = Self(BLOCK_BYTES);

    /// Returns the unit of `bytes` bytes; `None` if there is no such unit. Devices have
    /// [`SECTOR`](Self::SECTOR) and [`BLOCK`](Self::BLOCK); with smaller units short records have
    /// many, for tests.
    pub const fn new(bytes: usize) -> Option<Self> {
        // INVARIANT: That is checked.
        match bytes.is_power_of_two() && bytes >= 64 && bytes <= BLOCK_BYTES {
            true => Some(Self(bytes)),
            false => None,
        }
    }

    /// Returns the unit for a device with logical and physical blocks of so many bytes. One that
    /// has to read a physical block to write a part of it is given whole blocks.
    pub const fn of_limits(logical_bytes: u32, physical_bytes: u32) -> Self {
        // CAST: widening; `usize::from` is not const.
        let is_fine = logical_bytes as usize <= Self::SECTOR.0;
        match is_fine && physical_bytes as usize <= Self::SECTOR.0 {
            true => Self::SECTOR,
            false => Self::BLOCK,
        }
    }

    /// Returns whether each sector can be written by itself.
    pub const fn fits_sectors(self) -> bool {
        self.0 <= Self::SECTOR.0
    }

    /// The size of a record whose content has `bytes` bytes, at most a block.
    const fn rounded(self, bytes: usize) -> usize {
        // A block is a multiple of each unit.
        let rest = self.0.wrapping_sub(1);
        bytes.saturating_add(rest) & !rest
    }
}

const MAGIC: u64 = 0x6c61_6e72_756f_6a70;
const ENTRY_BYTES: usize = 40;
const HEAD_BYTES: usize = 64;
const CRC_BYTES: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireHead {
    magic: U64,
    volume: U64,
    sequence: U64,
    tail: U64,
    count: U16,
    /// The size of the record; 0: that of a block, as all records of version 1 have it.
    bytes: U16,
    /// 0 in records of older servers.
    flushed: U64,
    /// 0 in records of older servers.
    device_blocks: U64,
    reserved: [u8; 12],
}
const _: () = assert!(size_of::<WireHead>() == HEAD_BYTES);
const _: () = assert!(HEAD_BYTES + ENTRIES_MAX * ENTRY_BYTES + CRC_BYTES <= BLOCK_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireEntry {
    /// The first block in the lower 48 bits, the number of blocks in the upper 16.
    blocks: U64,
    old: Tuple,
    new: Tuple,
}
const _: () = assert!(size_of::<WireEntry>() == ENTRY_BYTES);

/// An entry: one block that is written, or a run of blocks of one group that are discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The first data block.
    pub first: u64,
    /// The number of data blocks; more than 1 only if they are discarded.
    pub blocks: u16,
    /// The tuple of the first block before.
    pub old: Tuple,
    /// The tuple of the first block after.
    pub new: Tuple,
}

impl Entry {
    fn from_wire(wire: &WireEntry) -> Self {
        let blocks = wire.blocks.get();
        Self {
            first: blocks & ((1 << REFERENCE_BITS) - 1),
            // CAST: 16 bits are left.
            blocks: (blocks >> REFERENCE_BITS) as u16,
            old: wire.old,
            new: wire.new,
        }
    }

    fn to_wire(self) -> WireEntry {
        let blocks = u64::from(self.blocks) << REFERENCE_BITS;
        WireEntry {
            blocks: U64::new(blocks | self.first),
            old: self.old,
            new: self.new,
        }
    }

    /// Returns whether the blocks exist, are of one group, and the new tuple is one for them.
    fn is_valid(&self, layout: &Layout, seal: &Seal) -> bool {
        let (_, index) = group::place(self.first);
        let end = u64::from(index).saturating_add(self.blocks.into());
        let is_placed =
            self.blocks != 0 && end <= GROUP_BLOCKS && self.first < layout.data_blocks();
        let meaning = seal.meaning(&self.new, self.first);
        let is_meant = match meaning {
            Meaning::Data { .. } => self.blocks == 1,
            Meaning::Unwritten => true,
            Meaning::Lost | Meaning::Foreign => false,
        };
        is_placed && is_meant
    }

    /// Returns the group.
    pub fn group(&self) -> u64 {
        group::place(self.first).0
    }

    /// Returns the tuple that data block `block` has after the entry; `None` if the entry is of
    /// others.
    pub fn after(&self, block: u64, seal: &Seal) -> Option<Tuple> {
        match block.checked_sub(self.first)? {
            0 => Some(self.new),
            offset => (offset < self.blocks.into()).then(|| seal.unwritten(block)),
        }
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// The sequence number; not 0.
    pub sequence: u64,
    /// The lowest sequence number that a replay needs: `sequence`, or a lower one.
    pub tail: u64,
    /// The data of all records below this number are durable, by the device's word: a flush has
    /// covered them, or they were written with FUA. At most `sequence`; 0 if nothing is known.
    pub flushed: u64,
    /// The number of blocks of the device as its superblock said when the record was written; 0 if
    /// it is not known.
    pub device_blocks: u64,
}

impl Head {
    /// The head of a mark that empties the journal of a device of so many blocks.
    pub const fn of_mark(sequence: u64, device_blocks: u64) -> Self {
        Self {
            sequence,
            tail: sequence,
            flushed: sequence,
            device_blocks,
        }
    }
}

/// A record that is being filled.
pub struct Builder<'a> {
    block: &'a mut Block,
    unit: Unit,
    count: u16,
}

impl<'a> Builder<'a> {
    /// Starts a record in `block`; what is in it does not matter.
    pub fn new(block: &'a mut Block, unit: Unit) -> Self {
        Self {
            block,
            unit,
            count: 0,
        }
    }

    /// Adds an entry; returns whether there was room for it.
    pub fn push(&mut self, entry: &Entry) -> bool {
        let number = usize::from(self.count);
        let entries = self.block.get_mut(HEAD_BYTES..).unwrap_or_default();
        let mut places = entries.chunks_exact_mut(ENTRY_BYTES).take(ENTRIES_MAX);
        match places.nth(number) {
            Some(bytes) => {
                bytes.copy_from_slice(entry.to_wire().as_bytes());
                self.count = self.count.saturating_add(1);
                true
            }
            None => false,
        }
    }

    /// Completes the record, and returns what is to be written: whole units.
    pub fn finish(self, head: Head, seal: &Seal, crc: &impl Checksum) -> &'a [u8] {
        let end = HEAD_BYTES.saturating_add(usize::from(self.count).saturating_mul(ENTRY_BYTES));
        let bytes = self.unit.rounded(end.saturating_add(CRC_BYTES));
        let record = self.block.get_mut(..bytes).unwrap_or_default();
        record.get_mut(end..).unwrap_or_default().fill(0);
        let wire = WireHead {
            magic: U64::new(MAGIC),
            volume: U64::new(seal.volume()),
            sequence: U64::new(head.sequence),
            tail: U64::new(head.tail),
            count: U16::new(self.count),
            // CAST: it is below the size of a block.
            bytes: U16::new(if bytes < BLOCK_BYTES { bytes as u16 } else { 0 }),
            flushed: U64::new(head.flushed),
            device_blocks: U64::new(head.device_blocks),
            reserved: [0; 12],
        };
        // The record is larger.
        let _ = wire.write_to_prefix(record);
        if let Some((covered, stored)) = record.split_last_chunk_mut::<CRC_BYTES>() {
            *stored = crc.crc64(covered).to_le_bytes();
        }
        record
    }
}

/// Returns whether a block begins as a record of any device does, valid or not.
///
/// The block of record 1 does, from the time when its device was formatted.
pub fn has_magic(block: &Block) -> bool {
    block.starts_with(&MAGIC.to_le_bytes())
}

/// Returns a head whose record has the checksum that it names, and the bytes behind it.
fn checked<'a>(block: &'a Block, seal: &Seal, crc: &impl Checksum) -> Option<(WireHead, &'a [u8])> {
    let (wire, _) = WireHead::read_from_prefix(block).ok()?;
    if wire.magic.get() != MAGIC || wire.volume.get() != seal.volume() {
        return None;
    }
    let bytes = match wire.bytes.get() {
        0 => BLOCK_BYTES,
        bytes => bytes.into(),
    };
    let (covered, stored) = block.get(..bytes)?.split_last_chunk::<CRC_BYTES>()?;
    let entries = covered.get(HEAD_BYTES..)?;
    (u64::from_le_bytes(*stored) == crc.crc64(covered)).then_some((wire, entries))
}

/// Returns the number of blocks that the device has as a slot of its journal says, 0 if that says
/// nothing. Its entries do not count: those of space that a layout lacks are not valid there.
pub fn device_blocks(block: &Block, seal: &Seal, crc: &impl Checksum) -> u64 {
    checked(block, seal, crc).map_or(0, |(wire, _)| wire.device_blocks.get())
}

/// A valid record.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    head: Head,
    entries: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a slot of the journal; `None` if it has no valid record of this device.
    pub fn parse(
        block: &'a Block,
        layout: &Layout,
        seal: &Seal,
        crc: &impl Checksum,
    ) -> Option<Self> {
        let (wire, entries) = checked(block, seal, crc)?;
        let head = Head {
            sequence: wire.sequence.get(),
            tail: wire.tail.get(),
            flushed: wire.flushed.get(),
            device_blocks: wire.device_blocks.get(),
        };
        let live = head.sequence.checked_sub(head.tail)?;
        let count = usize::from(wire.count.get());
        let is_ordered = head.tail != 0 && head.flushed <= head.sequence;
        if !is_ordered || live >= layout.slots().into() || count > ENTRIES_MAX {
            return None;
        }
        let record = Self {
            head,
            entries: entries.get(..count.checked_mul(ENTRY_BYTES)?)?,
        };
        let is_valid = record.entries().all(|entry| entry.is_valid(layout, seal));
        is_valid.then_some(record)
    }

    /// Returns the head.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Returns the entries, in the order in which they were written.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + 'a {
        self.entries
            .chunks_exact(ENTRY_BYTES)
            .filter_map(|bytes| WireEntry::read_from_bytes(bytes).ok())
            .map(|wire| Entry::from_wire(&wire))
    }
}
