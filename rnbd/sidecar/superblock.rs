// SPDX-License-Identifier: GPL-2.0

//! The superblock: that a device is formatted, as what, and how it is laid out.
//!
//! It is one sector of 512 bytes, which devices write whole or not at all, at the start of block 0.
//! A copy of it is at the start of the last block, for repair by a command only: the copy alone
//! does not make a device one of ours, as block 0 is what other programs write when they take a
//! device over.

use core::fmt;

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
    group::GROUP_BLOCKS,
    layout::{
        Layout,
        Misfit,
        Segment,
        SEGMENTS_MAX,
        SUPERBLOCK, //
    },
    record::Unit,
    tuple::{
        Seal,
        TUPLE_BYTES, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

/// The size of the superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 512;

/// The version of everything on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// Records are whole blocks.
    One,
    /// Records may be shorter.
    #[default]
    Two,
}

impl Version {
    /// Returns the version with a number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    /// Returns its number.
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

const MAGIC: [u8; 8] = *b"ferro-pi";
/// The format of the tuples: CRC64 of 4096 bytes, 16 bytes.
const FORMAT_CRC64: u16 = 1;

/// The superblock on the device.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    format: U16,
    tuple_bytes: U16,
    block_bytes: U32,
    group_blocks: U32,
    uuid: [u8; 16],
    /// The block that this superblock was written to.
    here: U64,
    device_blocks: U64,
    slots: U32,
    segment_count: U32,
    segments: [WireSegment; SEGMENTS_MAX],
    reserved: [u8; 184],
    crc: U64,
}
const _: () = assert!(size_of::<Wire>() == SUPERBLOCK_BYTES);

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireSegment {
    start: U64,
    groups: U64,
}

/// The reason why a block is not the superblock of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The block is not a superblock: the device is not formatted, or was taken over.
    NotFormatted,
    /// The superblock is of another version or format, or has fields that are not known.
    OtherVersion(u32),
    /// The superblock is damaged.
    Checksum,
    /// The superblock was written to another block: the device begins elsewhere, for instance is a
    /// partition.
    Misplaced(u64),
    /// The device is smaller than when it was formatted.
    Truncated {
        /// The number of blocks when it was formatted, or has grown.
        expected: u64,
        /// The number of blocks now.
        found: u64,
    },
    /// The layout is not possible.
    Layout(Misfit),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFormatted => f.write_str(
                "it has no sidecar: `pi-sidecar format` makes one, which destroys what is on it",
            ),
            Self::OtherVersion(version) => write!(
                f,
                "its sidecar has version {version} or a format that is not known; versions 1 and 2 \
                 are"
            ),
            Self::Checksum => f.write_str(
                "its superblock is damaged: `pi-sidecar fsck --repair` uses the copy of it",
            ),
            Self::Misplaced(block) => write!(
                f,
                "its superblock was written to block {block} of a device: part of it is missing"
            ),
            Self::Truncated { expected, found } => write!(
                f,
                "it had {expected} blocks of 4096 bytes, and has {found}: it was truncated"
            ),
            Self::Layout(misfit) => write!(f, "its superblock makes no sense: {misfit}"),
        }
    }
}

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Superblock {
    /// The UUID of the device, from the time when it was formatted.
    pub uuid: [u8; 16],
    /// The version.
    pub version: Version,
    /// The layout.
    pub layout: Layout,
}

impl Superblock {
    /// Parses block `here` of a device that has `device_blocks` blocks now.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be used.
    pub fn parse(
        block: &Block,
        here: u64,
        device_blocks: u64,
        crc: &impl Checksum,
    ) -> Result<Self, Refusal> {
        let (wire, _) = Wire::read_from_prefix(block).map_err(|_| Refusal::NotFormatted)?;
        if wire.magic != MAGIC {
            return Err(Refusal::NotFormatted);
        }
        // Other versions may keep the checksum elsewhere.
        let number = wire.version.get();
        let version = Version::from_number(number).ok_or(Refusal::OtherVersion(number))?;
        if wire.crc.get() != wire.checksum(crc) {
            return Err(Refusal::Checksum);
        }
        let is_known = wire.format.get() == FORMAT_CRC64
            && usize::from(wire.tuple_bytes.get()) == TUPLE_BYTES
            && wire.block_bytes.get() == BLOCK_BYTES as u32
            && u64::from(wire.group_blocks.get()) == GROUP_BLOCKS
            && wire.reserved.iter().all(|byte| *byte == 0);
        if !is_known {
            return Err(Refusal::OtherVersion(number));
        }
        if wire.here.get() != here {
            return Err(Refusal::Misplaced(wire.here.get()));
        }
        let layout = wire.layout().map_err(Refusal::Layout)?;
        if layout.device_blocks() > device_blocks {
            return Err(Refusal::Truncated {
                expected: layout.device_blocks(),
                found: device_blocks,
            });
        }
        Ok(Self {
            uuid: wire.uuid,
            version,
            layout,
        })
    }

    /// Makes of block 0 what is to be written back with another mark of use: what was read, or the
    /// superblock that a growth is writing at the same time. Then it does not matter which of the
    /// two writes is the last. Returns `false` if it must not be written: what a bad reading says
    /// would stay there. The size that the device has now does not matter.
    pub fn write_back(block: &mut Block, ending: Option<&Self>, crc: &impl Checksum) -> bool {
        match ending {
            Some(superblock) => superblock.write(block, SUPERBLOCK, crc),
            None => return Self::parse(block, SUPERBLOCK, u64::MAX, crc).is_ok(),
        }
        true
    }

    /// Writes the superblock for block `here`; the rest of the block is zero.
    pub fn write(&self, block: &mut Block, here: u64, crc: &impl Checksum) {
        let mut segments = [WireSegment::default(); SEGMENTS_MAX];
        for (to, from) in segments.iter_mut().zip(self.layout.segments()) {
            *to = WireSegment {
                start: U64::new(from.start),
                groups: U64::new(from.groups),
            };
        }
        let count = u32::try_from(self.layout.segments().len()).unwrap_or(u32::MAX);
        let mut wire = Wire {
            magic: MAGIC,
            version: U32::new(self.version.number()),
            format: U16::new(FORMAT_CRC64),
            tuple_bytes: U16::new(TUPLE_BYTES as u16),
            block_bytes: U32::new(BLOCK_BYTES as u32),
            group_blocks: U32::new(GROUP_BLOCKS as u32),
            uuid: self.uuid,
            here: U64::new(here),
            device_blocks: U64::new(self.layout.device_blocks()),
            slots: U32::new(self.layout.slots()),
            segment_count: U32::new(count),
            segments,
            reserved: [0; 184],
            crc: U64::ZERO,
        };
        wire.crc = U64::new(wire.checksum(crc));
        block.fill(0);
        // The block is larger than the superblock.
        let _ = wire.write_to_prefix(block);
    }

    /// Returns the unit of the records that are written to it; the device can write `of_device`
    /// without reading. Records of each unit are read in both versions.
    pub const fn unit(&self, of_device: Unit) -> Unit {
        match self.version {
            Version::One => Unit::BLOCK,
            Version::Two => of_device,
        }
    }

    /// Returns the seal of the device's tuples and records.
    pub fn seal(&self, crc: &impl Checksum) -> Seal {
        Seal::new(&self.uuid, crc)
    }
}

/// A device whose block 0 cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable<E> {
    /// The device has no sidecar.
    NoSidecar,
    /// The device has a sidecar, without a superblock.
    Damaged,
    /// The device may have a sidecar.
    Unknown(E),
}

impl<E: Copy> Unreadable<E> {
    /// Judges by the error, and by whether the start of a journal and a copy of a superblock are
    /// where they would be. `is_blank`: the error is that of a block that was never written, as all
    /// are of a new dm-integrity. A device that answers with others, all of whose paths are gone,
    /// is not to be taken for one without a sidecar: what is written to that destroys it.
    pub fn judge(error: E, others: [Result<bool, E>; 2], is_blank: impl Fn(E) -> bool) -> Self {
        let (journal, copy) = match others {
            [Ok(true), _] | [_, Ok(true)] => return Self::Damaged,
            [Ok(false), Ok(false)] => return Self::NoSidecar,
            [journal, copy] => (journal.err(), copy.err()),
        };
        let mut errors = [Some(error), journal, copy].into_iter().flatten();
        let bad = errors.find(|error| !is_blank(*error));
        bad.map_or(Self::NoSidecar, Self::Unknown)
    }
}

impl Wire {
    fn checksum(&self, crc: &impl Checksum) -> u64 {
        let mut copy = *self;
        copy.crc = U64::ZERO;
        crc.crc64(copy.as_bytes())
    }

    fn layout(&self) -> Result<Layout, Misfit> {
        let mut segments = [Segment::default(); SEGMENTS_MAX];
        for (to, from) in segments.iter_mut().zip(&self.segments) {
            *to = Segment {
                start: from.start.get(),
                groups: from.groups.get(),
            };
        }
        let count = usize::try_from(self.segment_count.get()).unwrap_or(usize::MAX);
        let used = segments.get(..count).ok_or(Misfit::TooManySegments)?;
        // INVARIANT of the format: what is not used is zero.
        let rest = segments.get(count..).unwrap_or_default();
        if rest.iter().any(|segment| *segment != Segment::default()) {
            return Err(Misfit::Segments);
        }
        Layout::from_parts(self.device_blocks.get(), self.slots.get(), used)
    }
}
