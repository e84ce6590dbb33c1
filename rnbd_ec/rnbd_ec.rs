// SPDX-License-Identifier: GPL-2.0

//! A disk over three members: compressed, readable without any one of them, and without a write
//! hole.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | what is written where, and what follows what: pure code over the crate `seglog` |
//! | `device/` | an array that is assembled: members, requests, the disk |
//!
//! The members are block devices, normally three disks of rnbd.

pub mod proto;

mod arrays;
mod device;
mod shown;
mod sysfs;

use kernel::prelude::*;

use self::{
    arrays::Arrays,
    sysfs::Control, //
};

module! {
    type: RnbdEc,
    name: "rnbd_ec",
    authors: ["The Ferrofabric developers"],
    description: "A compressed, erasure-coded disk over three block devices",
    license: "GPL",
}

/// The module.
struct RnbdEc {
    _control: Control,
}

impl kernel::Module for RnbdEc {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let control = Control::new(Arrays::new()?)?;
        Ok(Self { _control: control })
    }
}
