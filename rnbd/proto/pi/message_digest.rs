// SPDX-License-Identifier: GPL-2.0

//! The digest of the message of a READ or WRITE with protection information: a CRC-32C of
//! operation, device, address and lengths, and of the tuples of a WRITE.
//!
//! The CRC-32C is that of Castagnoli with the inversions of iSCSI: `0xe3069283` of `123456789`.

use core::mem::offset_of;

use zerocopy::FromBytes;

use super::super::wire::Io;

/// The number of bytes at the start of an io message that its CRC covers: all before it.
pub const DIGESTED_LEN: usize = offset_of!(Io, pi_crc);

/// The fields of an io message that describe and protect its tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageDigest {
    /// The number of bytes of tuples, behind the blocks.
    pub tuples_len: u16,
    /// The CRC-32C of the first [`DIGESTED_LEN`] bytes of the message and of the tuples of a WRITE.
    pub crc: u32,
}

impl MessageDigest {
    /// Reads the digest of an io message; `None` if that is too short for one.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Self> {
        let (io, _) = Io::ref_from_prefix(message).ok()?;
        Some(io.digest())
    }
}
