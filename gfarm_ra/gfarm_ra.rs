// SPDX-License-Identifier: GPL-2.0

//! Gfarm: mounts a Gfarm file system and reads it.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | requests, replies, options, state machines: pure code, the same on the host |
//! | `cache/` | a mount as a node of the cooperative cache |
//! | `net/` | the connections of a mount to gfmd and to gfsds |
//! | `fs/` | mounts, inodes, directories, files |
//!
//! ```text
//!   VFS, netfs -- vfs_ext -- fs/ -- net/ -- net_ext -- TCP
//!                               \   /
//!                               proto/
//! ```
//!
//! `vfs_ext` (the folder `vfs/`) and `net_ext` are the abstractions, crates of their own.

mod cache;
mod fs;
mod net;
pub mod proto;

use fs::Gfarm;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use vfs_ext::{
    proc,
    Registration, //
};

module! {
    type: Module,
    name: "gfarm_ra",
    authors: ["The Ferrofabric developers"],
    description: "Gfarm file system, read only",
    license: "GPL",
    alias: ["fs-gfarm"],
}

/// The fields are dropped in this order.
struct Module {
    _file_system: Registration<Gfarm>,
    /// The directory in which each mount has its own directory.
    _proc: Arc<proc::Directory>,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let proc = proc::Directory::new(c"fs/gfarm", None)?;
        Ok(Self {
            _file_system: Registration::new(module)?,
            _proc: proc,
        })
    }
}
