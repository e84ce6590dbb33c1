// SPDX-License-Identifier: GPL-2.0

//! The mark of a device in use: its sector, and what is found there.

use core::fmt;

use ferro_proto::text::{
    self,
    Escaped, //
};
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

use super::super::{
    Checksum,
    BLOCK_BYTES, //
};

/// The size of a mark in bytes: devices write a sector whole or not at all.
pub const MARK_BYTES: usize = 512;
/// The place of the mark in block 0, in bytes: behind the superblock.
pub const MARK_OFFSET: usize = 512;
const _: () = assert!(MARK_OFFSET + MARK_BYTES <= BLOCK_BYTES);

/// The sector that has the mark.
pub type Sector = [u8; MARK_BYTES];

/// The maximum length of the name of a machine in bytes (`__NEW_UTS_LEN`).
pub const NODE_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"ferro-in";
const VERSION: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    opening: U64,
    boot: U64,
    stamp: U64,
    node: [u8; NODE_BYTES],
    rest: [u8; 400],
    crc: U64,
}
const _: () = assert!(size_of::<Wire>() == MARK_BYTES);

/// The server that has a device open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// A random number of this opening of the device.
    pub opening: u64,
    /// The boot of the machine.
    pub boot: u64,
    node: [u8; NODE_BYTES],
}

impl Holder {
    /// The server that opens a device with the random number `opening`, in a boot of the machine
    /// `node`. White space at the ends of the name is removed, and what is too long.
    pub fn new(opening: u64, boot: u64, node: &[u8]) -> Self {
        let mut kept = [0; NODE_BYTES];
        for (to, from) in kept.iter_mut().zip(text::trim(node)) {
            *to = *from;
        }
        Self {
            opening,
            boot,
            node: kept,
        }
    }
}

impl Holder {
    /// Writes the mark of the number `stamp`, which no other mark of this opening has.
    pub fn mark(&self, stamp: u64, sector: &mut Sector, crc: &impl Checksum) {
        let mut wire = Wire {
            magic: MAGIC,
            version: U32::new(VERSION),
            reserved: U32::ZERO,
            opening: U64::new(self.opening),
            boot: U64::new(self.boot),
            stamp: U64::new(stamp),
            node: self.node,
            rest: [0; 400],
            crc: U64::ZERO,
        };
        wire.crc = U64::new(crc.crc64(wire.as_bytes()));
        sector.copy_from_slice(wire.as_bytes());
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.node.iter().position(|byte| *byte == 0);
        let name = self.node.get(..len.unwrap_or(NODE_BYTES));
        write!(
            f,
            "the server '{}' (boot {:016x})",
            Escaped(name.unwrap_or_default()),
            self.boot
        )
    }
}

/// The content of the sector of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// No server has the device open.
    Free,
    /// A server has, or had.
    Marked {
        /// The number of its opening.
        opening: u64,
        /// The number of this mark.
        stamp: u64,
    },
    /// A mark that is damaged or of an unknown version, with a checksum of its bytes.
    Unknown(u64),
}

impl Found {
    /// Returns what the sector has, and who has written it.
    pub fn parse(sector: &Sector, crc: &impl Checksum) -> (Self, Option<Holder>) {
        if sector.iter().all(|byte| *byte == 0) {
            return (Self::Free, None);
        }
        let sum = crc.crc64(sector);
        let Ok(wire) = Wire::read_from_bytes(sector) else {
            return (Self::Unknown(sum), None);
        };
        let unsealed = Wire {
            crc: U64::ZERO,
            ..wire
        };
        let is_known = wire.magic == MAGIC
            && wire.version.get() == VERSION
            && wire.crc.get() == crc.crc64(unsealed.as_bytes());
        if !is_known {
            return (Self::Unknown(sum), None);
        }
        let holder = Holder {
            opening: wire.opening.get(),
            boot: wire.boot.get(),
            node: wire.node,
        };
        let found = Self::Marked {
            opening: holder.opening,
            stamp: wire.stamp.get(),
        };
        (found, Some(holder))
    }

    /// Returns whether it is a mark of this opening.
    pub const fn is_of(&self, number: u64) -> bool {
        matches!(self, Self::Marked { opening, .. } if *opening == number)
    }
}

/// Another user of the device; `None` if its mark is not there, or names no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Other(pub Option<Holder>);

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(holder) => holder.fmt(f),
            None => f.write_str("something that left no name"),
        }
    }
}
