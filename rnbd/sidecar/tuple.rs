// SPDX-License-Identifier: GPL-2.0

//! The tuple of a data block, as it is stored: sealed for its device and its place.
//!
//! It is a [tuple] of the format crc64, whose reference is the block's number XOR a number that is
//! derived from the device's UUID. So a block that comes with its tuple from another place, or
//! from the same place of another device, does not fit.
//!
//! The application tag 0xffff, which in NVMe turns the check off, is never stored for data. It
//! marks blocks without data: those that were discarded read as zeroes; the content of *lost*
//! blocks is neither the old nor the new one. Blocks that were never written are data, zeroes, if
//! the device was formatted so, else without data.

use core::fmt;

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    proto::pi::{
        tuple::{
            self,
            APP_ESCAPE, //
        },
        Format, //
    },
    Checksum, //
};

const FORMAT: Format = Format::Crc64;

/// The size of a tuple in bytes.
pub const TUPLE_BYTES: usize = FORMAT.tuple_bytes() as usize;
const _: () = assert!(TUPLE_BYTES == tuple::TUPLE_LEN_MAX);

/// The number of bits of a reference, and of a block's number.
pub const REFERENCE_BITS: u32 = 48;

const REFERENCE_MASK: u64 = (1 << REFERENCE_BITS) - 1;
/// Guards of the blocks without data, before they are sealed.
const UNWRITTEN: u64 = 0x756e_7772_6974_7465;
const LOST: u64 = 0x6c6f_7374_6461_7461;

/// A tuple as it is stored.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Tuple([u8; TUPLE_BYTES]);

impl Tuple {
    fn sealed(guard: u64, app: u16, reference: u64) -> Self {
        let tuple = tuple::Tuple {
            guard,
            app,
            reference,
        };
        Self(tuple.write(FORMAT))
    }

    fn read(&self) -> Option<tuple::Tuple> {
        tuple::Tuple::read(FORMAT, &self.0)
    }
}

/// The meaning of a tuple for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The block has data of this guard and application tag.
    Data {
        /// The CRC of the block.
        guard: u64,
        /// The application tag.
        app: u16,
    },
    /// The block reads as zeroes: the data at its place on the device do not count.
    Unwritten,
    /// The block has no valid content: a write of it was torn or has failed.
    Lost,
    /// The tuple belongs to another block or another device, or is damaged.
    Foreign,
}

/// The result of a check of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The data fit.
    Good,
    /// The block reads as zeroes.
    Unwritten,
    /// The content was lost in a crash or by a failed write, as the sidecar knows.
    Lost,
    /// The data do not fit the guard.
    WrongGuard,
    /// The tuple is of another block or another device, or is damaged.
    WrongReference,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Unwritten => "without data",
            Self::Lost => "its content was lost: a write of it was torn or has failed",
            Self::WrongGuard => "its data do not fit its guard",
            Self::WrongReference => "its tuple is of another block or device, or damaged",
        })
    }
}

impl Verdict {
    /// Returns whether a reader gets content, and no error.
    pub const fn is_readable(self) -> bool {
        matches!(self, Self::Good | Self::Unwritten)
    }
}

/// The seal of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seal(u64);

impl Seal {
    /// Derives the seal of the device with this UUID.
    pub fn new(uuid: &[u8; 16], crc: &impl Checksum) -> Self {
        Self(crc.crc64(uuid))
    }

    /// Returns the number that the device's journal records carry.
    pub const fn volume(&self) -> u64 {
        self.0
    }

    fn reference(&self, block: u64) -> u64 {
        (block ^ self.0) & REFERENCE_MASK
    }

    /// Returns the tuple of data with this guard at data block `block`; `None` for the application
    /// tag that turns the check off.
    pub fn data(&self, block: u64, guard: u64, app: u16) -> Option<Tuple> {
        (app != APP_ESCAPE).then(|| Tuple::sealed(guard, app, self.reference(block)))
    }

    /// Returns the tuple of data block `block` that was discarded, or never written and what is in
    /// it is not known.
    pub fn unwritten(&self, block: u64) -> Tuple {
        Tuple::sealed(UNWRITTEN ^ self.0, APP_ESCAPE, self.reference(block))
    }

    /// Returns the tuple of data block `block` whose content is lost.
    pub fn lost(&self, block: u64) -> Tuple {
        Tuple::sealed(LOST ^ self.0, APP_ESCAPE, self.reference(block))
    }

    /// Returns what `tuple` means for data block `block`.
    pub fn meaning(&self, tuple: &Tuple, block: u64) -> Meaning {
        match tuple.read() {
            Some(tuple) if tuple.reference == self.reference(block) => self.decode(&tuple),
            _ => Meaning::Foreign,
        }
    }

    fn decode(&self, tuple: &tuple::Tuple) -> Meaning {
        let guard = tuple.guard;
        match tuple.app {
            APP_ESCAPE if guard == UNWRITTEN ^ self.0 => Meaning::Unwritten,
            APP_ESCAPE if guard == LOST ^ self.0 => Meaning::Lost,
            APP_ESCAPE => Meaning::Foreign,
            app => Meaning::Data { guard, app },
        }
    }

    /// Checks data block `block`: its tuple, and the CRC of its data (of no account where the tuple
    /// says that there are none).
    pub fn check(&self, tuple: &Tuple, block: u64, crc: u64) -> Verdict {
        match self.meaning(tuple, block) {
            Meaning::Data { guard, .. } if guard == crc => Verdict::Good,
            Meaning::Data { .. } => Verdict::WrongGuard,
            Meaning::Unwritten => Verdict::Unwritten,
            Meaning::Lost => Verdict::Lost,
            Meaning::Foreign => Verdict::WrongReference,
        }
    }
}
