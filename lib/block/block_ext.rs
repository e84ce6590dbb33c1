// SPDX-License-Identifier: GPL-2.0

//! The block layer, from both sides: disks that a module provides and block devices that it opens.
//!
//! The in-tree `kernel::block::mq` gives a driver neither the operation nor the data of a request;
//! until it does, the abstractions here wrap the C interface themselves. It is a crate and a module
//! beside `kernel_ext`, so that modules without a disk do not load it.
//!
//! | Module | What |
//! |---|---|
//! | [`mq`] | hardware queues, tag sets and requests of a disk that the module provides |
//! | [`disk`], [`major`] | the disk and its device number |
//! | [`limits`] | the limits of a disk |
//! | [`integrity`] | protection information: that of a disk, and that of requests and bios |
//! | [`bdev`] | a block device that the module opens |
//! | [`bio`] | IO to such a device |

pub mod bdev;
pub mod bio;
pub mod blocking;
pub mod disk;
pub mod integrity;
pub mod limits;
pub mod major;
pub mod mq;
mod op;

use kernel::prelude::*;

pub use op::{
    Command,
    Flags,
    Op, //
};

/// The bytes of a sector, the unit of all sector numbers, independent of the block size of a
/// device.
pub const SECTOR_BYTES: u32 = 512;

module! {
    type: Library,
    name: "block_ext",
    authors: ["The Ferrofabric developers"],
    description: "The block layer, beyond the in-tree kernel crate",
    license: "GPL",
}

struct Library;

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        disk::drain();
    }
}
