// SPDX-License-Identifier: GPL-2.0

//! The sidecar: protection information of a plain device, on the device itself.
//!
//! ```text
//! block 0      1 ... slots    start of the segment              last block
//! superblock | journal ring | data blocks ... | PI blocks ... | copy of the superblock
//! ```
//!
//! The device is divided into blocks of 4 KiB. A *data block* has a tuple of 16 bytes; the tuples
//! of 256 data blocks, a *group*, are one *PI block*. A write goes to the device once: a record
//! with the old and the new tuples is written to the journal and is durable before the data are;
//! the PI block is *written back* later. After a crash [`replay`] compares the data with the tuples
//! in the journal, and keeps the one that fits.
//!
//! As in `proto` there is no `unsafe`, no kernel type, no allocation, no lock, no clock, no log and
//! no panic. `Documentation/decisions/0020-tuples-go-to-a-journal-first.md` has the reasons.

#![forbid(unsafe_code)]

pub mod claim;
pub mod command;
pub mod group;
pub mod growth;
pub mod idle;
pub mod inline_submit;
pub mod layout;
pub mod online_scrub;
pub mod pi_cache;
pub mod queue;
pub mod record;
pub mod recovery;
pub mod replay;
pub mod ring;
pub mod scrub;
pub mod sectors;
pub mod store;
pub mod superblock;
pub mod tickets;
pub mod tuple;

use super::proto;

/// The size of a block in bytes: of data, of a PI block, of a slot of the journal.
pub const BLOCK_BYTES: usize = 4096;

/// The sectors of a block.
pub const BLOCK_SECTORS: u32 = BLOCK_BYTES as u32 / proto::SECTOR_SIZE;

/// The content of a block.
pub type Block = [u8; BLOCK_BYTES];

/// The CRC64 of NVMe (polynomial 0xad93d23594c93659, reflected, all ones before and after), which
/// this code takes from its caller: the kernel and the host have their own.
pub trait Checksum {
    /// Returns the CRC of `bytes`.
    fn crc64(&self, bytes: &[u8]) -> u64;
}
