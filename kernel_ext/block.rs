// SPDX-License-Identifier: GPL-2.0

//! The block layer, from both sides: disks that a module serves ([`mq`], [`disk`]) and block
//! devices that it uses ([`bdev`], [`bio`]).
//!
//! The in-tree `kernel::block::mq` shows neither the operation nor the data of a request to its
//! driver; until it does, the abstractions here stand on the C interface themselves.

pub mod bdev;
pub mod bio;
pub mod disk;
pub mod limits;
pub mod major;
pub mod mq;
mod op;

pub use op::{
    Flags,
    Op, //
};

/// Bytes of a sector, the unit of all sector numbers whatever the block size of a device.
pub const SECTOR_BYTES: u32 = 512;
