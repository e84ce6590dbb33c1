// SPDX-License-Identifier: GPL-2.0

//! Chunks of 4 KiB that prove themselves: data, the number of the chunk, and a checksum of both.
//!
//! ```text
//! strict                              extended
//!    0  4048  data                       0  4048  data
//! 4048     8  id                      4048     8  id
//! 4056    36  reserved                4056    16  object: high half, low half
//!                                     4072     8  generation
//!                                     4080     2  bytes of data that are used
//!                                     4082     2  flags: 1 extended, 2 CRC-32C, 4 LZ4
//!                                     4084     4  checksum of the data that is used
//!                                     4088     4  0
//! 4092     4  checksum of 0..4092     4092     4  checksum of 0..4092
//! ```
//!
//! Integers are little-endian. The checksum is CRC-32 of IEEE 802.3 in zlib's convention (the
//! register begins with ones and is inverted at the end), or CRC-32C if an extended chunk says so.
//! The strict layout is that of the CRC32/UMR example; its reserved bytes have no meaning and are
//! kept. The extended layout uses them. A chunk does not tell which of the two it has: its reader
//! knows.
//!
//! What is found: changed bytes and a chunk that was written in part ([`Defect::Crc`]), a chunk at
//! the wrong place ([`Defect::Id`]) or of another object, and in an extended one an old state
//! ([`Defect::Generation`]). A strict chunk cannot tell that a write was lost.
//!
//! Pure as each `proto` folder: no `unsafe`, no allocation, no lock, no clock, no log and no panic.
//! The checksums come from the caller ([`Checksums`]): the kernel and the host have fast ones.

// The kernel's build sets `no_std` itself.
#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

mod defect;
pub mod extended;
#[cfg(MODULE)]
mod kernel_traits;
mod layout;
pub mod strict;

pub use self::{
    defect::Defect,
    layout::is_blank, //
};

/// The bytes of a chunk.
pub const CHUNK_LEN: usize = 4096;
/// The bytes of data in a chunk.
pub const DATA_LEN: usize = 4048;
/// The bytes behind the data, the checksum included.
pub const METADATA_LEN: usize = 48;
/// The bytes of the strict layout that have no meaning.
pub const RESERVED_LEN: usize = 36;

/// A chunk.
pub type Chunk = [u8; CHUNK_LEN];
/// The bytes that follow the data.
pub type MetadataBytes = [u8; METADATA_LEN];

/// The checksums, in zlib's convention: `before` is the checksum of what comes first, 0 for
/// nothing, and the result is that of both.
pub trait Checksums {
    /// CRC-32 of IEEE 802.3: `0xcbf43926` of `123456789`.
    fn crc32(before: u32, bytes: &[u8]) -> u32;
    /// CRC-32C: `0xe3069283` of `123456789`.
    fn crc32c(before: u32, bytes: &[u8]) -> u32;
}
