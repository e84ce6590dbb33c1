// SPDX-License-Identifier: GPL-2.0

//! The block layer, from both sides: disks that a module serves and block devices that it uses.
//!
//! The in-tree `kernel::block::mq` shows neither the operation nor the data of a request to its
//! driver; until it does, the abstractions here stand on the C interface themselves. A crate and a
//! module of its own beside `kernel_ext`: what uses no disk does not load it.
//!
//! | Module | What |
//! |---|---|
//! | [`mq`] | hardware queues, tag sets and requests of a disk that the module serves |
//! | [`disk`], [`major`] | the disk itself and its device number |
//! | [`limits`] | what a disk can do |
//! | [`bdev`] | a block device that the module opens |
//! | [`bio`] | IO to such a device |

pub mod bdev;
pub mod bio;
pub mod disk;
pub mod limits;
pub mod major;
pub mod mq;
mod op;

use kernel::prelude::*;

pub use op::{
    Flags,
    Op, //
};

/// Bytes of a sector, the unit of all sector numbers whatever the block size of a device.
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
