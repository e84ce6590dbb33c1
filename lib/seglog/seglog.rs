// SPDX-License-Identifier: GPL-2.0

//! The log of segments: an array of members, of which one may be lost, that is written like a tape;
//! or one member alone, without parity.
//!
//! ```text
//! superblock slot 0 | slot 1 | table area 0 | table area 1 | segment 0 | segment 1 | ...
//! ```
//!
//! Each member has this layout. A *segment* has a column on each member, at the same offset; one of
//! them is the parity column. A *batch* has the same units in each column: a head, a body. It is
//! *striped* over the data columns, with their XOR in the parity column, or one data column that is
//! *mirrored* to a second member. Bodies have *records*, which assign the entries of a table: the
//! entry of a block says where its record is.
//!
//! What is live is never overwritten, so there is no write hole. After a crash the log is followed
//! from a start that the superblock names; the first batch that is not whole ends it.
//!
//! The crate decides; its user carries out. As in each pure folder there is no `unsafe`, no kernel
//! type, no allocation, no lock, no clock, no log and no panic, and each number that comes from a
//! medium is checked before it is used.
//! `Documentation/decisions/0027-an-incarnation-begins-with-a-batch.md` and
//! `0028-a-member-comes-back-by-collecting.md` have the reasons.

// The kernel's build sets `no_std` itself.
#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

pub mod batch;
pub mod chain;
pub mod collect;
pub mod cursor;
pub mod devices;
mod ending;
pub mod epoch;
pub mod fault;
pub mod free;
pub mod identity;
pub mod layout;
pub mod log;
pub mod members;
pub mod reading;
pub mod record;
pub mod recovery;
pub mod resync;
pub mod segments;
pub mod slots;
pub mod source;
mod standing;
pub mod superblock;
pub mod table;

/// CRC-32C (Castagnoli; the register begins with ones and is inverted at the end), which this code
/// takes from its user: the kernel and the host have fast ones.
pub trait Checksum {
    /// Returns the CRC of `bytes`.
    fn crc32c(&self, bytes: &[u8]) -> u32;
}

/// The mark of the batches of an array: a random number that only its superblocks have. What
/// another array has left on a member is not taken for a batch of this one, and neither is what a
/// user has written as the content of a block, as the number is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrayTag(pub u64);
