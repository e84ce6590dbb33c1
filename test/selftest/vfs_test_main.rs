// SPDX-License-Identifier: GPL-2.0

//! A file system for tests of `vfs_ext`: `mount -t ferrotest none /mnt`.
//!
//! It serves a tree from memory, whose names and data are computed, as a server would: late, in
//! pieces, with errors, or never, by options of the mount ([`vfs::options`]). Built with the other
//! modules, used by the tests in virtual machines, not installed.

mod vfs;

use kernel::prelude::*;
use vfs::Ferrotest;
use vfs_ext::{
    proc,
    Registration, //
};

module! {
    type: Tests,
    name: "vfs_test",
    authors: ["The Ferrofabric developers"],
    description: "A file system for tests of vfs_ext",
    license: "GPL",
    alias: ["fs-ferrotest"],
}

/// The fields are dropped in this order.
struct Tests {
    _file_system: Registration<Ferrotest>,
    /// The directory in which each mount has its own.
    _proc: kernel::sync::Arc<proc::Directory>,
}

impl kernel::Module for Tests {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let proc = proc::Directory::new(c"fs/ferrotest", None)?;
        Ok(Tests {
            _file_system: Registration::new(module)?,
            _proc: proc,
        })
    }
}
