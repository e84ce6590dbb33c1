// SPDX-License-Identifier: GPL-2.0

//! The CRC-32C that protects the message of a READ or WRITE with protection information: operation,
//! device, address and lengths, and the tuples of a WRITE.
//!
//! It is the CRC-32C of Castagnoli with the inversions of iSCSI: `0xe3069283` of `123456789`.

use core::mem::offset_of;

use zerocopy::FromBytes;

use super::super::wire::Io;

/// The bytes at the start of an io message that its CRC covers: all before it.
pub const SEALED_LEN: usize = offset_of!(Io, pi_crc);

/// What an io message says of its tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The number of bytes of tuples, behind the blocks.
    pub tuples_len: u16,
    /// The CRC-32C of the first [`SEALED_LEN`] bytes of the message and of the tuples of a WRITE.
    pub crc: u32,
}

impl Seal {
    /// Reads the seal of an io message; `None` if that is too short for one.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Self> {
        let (io, _) = Io::ref_from_prefix(message).ok()?;
        Some(io.seal())
    }
}
