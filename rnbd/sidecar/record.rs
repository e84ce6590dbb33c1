// SPDX-License-Identifier: GPL-2.0

//! A record of the journal: blocks whose data are about to change, with their tuples before and
//! after.
//!
//! A record is one block with a sequence number, and is valid whole or not at all: its CRC covers
//! everything. Its first and its last sector both change with every record, so that a torn one
//! is never valid. `tail` is the lowest sequence number that a replay needs.

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
    reserved: [u8; 30],
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
}

/// A record that is being filled.
pub struct Builder<'a> {
    block: &'a mut Block,
    count: u16,
}

impl<'a> Builder<'a> {
    /// Starts a record in `block`.
    pub fn new(block: &'a mut Block) -> Self {
        block.fill(0);
        Self { block, count: 0 }
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

    /// Completes the record.
    pub fn finish(self, head: Head, seal: &Seal, crc: &impl Checksum) {
        let wire = WireHead {
            magic: U64::new(MAGIC),
            volume: U64::new(seal.volume()),
            sequence: U64::new(head.sequence),
            tail: U64::new(head.tail),
            count: U16::new(self.count),
            reserved: [0; 30],
        };
        // The block is larger than either.
        let _ = wire.write_to_prefix(self.block);
        let checksum = checksum(self.block, crc);
        let _ = U64::new(checksum).write_to_suffix(self.block);
    }
}

fn checksum(block: &Block, crc: &impl Checksum) -> u64 {
    let (covered, _) = block.split_at(BLOCK_BYTES - CRC_BYTES);
    crc.crc64(covered)
}

/// A valid record.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    head: Head,
    entries: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a block of the journal; `None` if it is not a valid record of this device.
    pub fn parse(
        block: &'a Block,
        layout: &Layout,
        seal: &Seal,
        crc: &impl Checksum,
    ) -> Option<Self> {
        let (wire, rest) = WireHead::read_from_prefix(block).ok()?;
        let (_, stored) = U64::read_from_suffix(block).ok()?;
        if wire.magic.get() != MAGIC || wire.volume.get() != seal.volume() {
            return None;
        }
        if stored.get() != checksum(block, crc) {
            return None;
        }
        let head = Head {
            sequence: wire.sequence.get(),
            tail: wire.tail.get(),
        };
        let live = head.sequence.checked_sub(head.tail)?;
        let count = usize::from(wire.count.get());
        if head.tail == 0 || live >= layout.slots().into() || count > ENTRIES_MAX {
            return None;
        }
        let record = Self {
            head,
            entries: rest.get(..count.checked_mul(ENTRY_BYTES)?)?,
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
