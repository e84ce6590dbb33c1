// SPDX-License-Identifier: GPL-2.0

//! The VFS and netfs, for a network file system that is read and not written.
//!
//! The in-tree `kernel::fs` has open files and `kiocb` only; until it has file systems, the
//! abstractions here wrap the C interface themselves.
//!
//! A file system is a type that implements [`FileSystem`]; a [`Registration`] makes it known. The
//! kernel calls the functions of the trait while a mount exists, and a mount keeps the module, so
//! no function of a module is called after its exit. What the functions get is borrowed from the
//! mount; references to inodes are bound to that borrow ([`InodeRef`]), so that none outlives the
//! mount. What outlives a call is counted: the data of a mount, of an open file, and a
//! [`Subrequest`], for whose end the unmount waits. Threads that are not called
//! by the kernel come in through an [`ActiveRefs`].
//!
//! | Module | What |
//! |---|---|
//! | [`file_system`] | the trait and its registration |
//! | [`context`] | options, and the log of a mount |
//! | [`super_block`] | a mount |
//! | [`inode`], [`attributes`] | files, directories and links |
//! | [`active_refs`] | references to a mount for other threads |
//! | [`folios`] | cached pages, by reference |
//! | [`directory`] | names, and reading of directories |
//! | [`read`] | requests for data of a file |
//! | [`proc`] | files below `/proc` |
//! | [`keyring`] | secrets of who mounts |
//! | [`trace`] | tracepoints |

pub mod active_refs;
pub mod attributes;
pub mod context;
mod direct_read;
pub mod directory;
mod file;
pub mod file_system;
pub mod folios;
pub mod inode;
pub mod keyring;
mod mounted;
mod namei;
mod opened_name;
pub mod proc;
mod rcu_walk;
pub mod read;
pub mod super_block;
pub mod trace;

use kernel::prelude::*;

pub use active_refs::ActiveRefs;
pub use attributes::{
    Attributes,
    Kind,
    Timestamp, //
};
pub use context::{
    MountContext,
    OptionError, //
};
pub use directory::{
    Entries,
    Entry,
    Name,
    Validity, //
};
pub use file_system::{
    FileSystem,
    Registration, //
};
pub use folios::Folios;
pub use inode::{
    Access,
    Freshness,
    Inode,
    InodeRef,
    Judge,
    Key, //
};
pub use opened_name::OpenedName;
pub use rcu_walk::Met;
pub use read::{
    lent::{
        Hole,
        Lent,
        Selection,
        LENT_PAGES_MAX, //
    },
    partial::Partial,
    End,
    Subrequest, //
};
pub use super_block::{
    ShownOptions,
    Statistics,
    SuperBlock, //
};

/// The bytes of the longest name of a directory entry.
pub const NAME_BYTES_MAX: usize = 255;

module! {
    type: Library,
    name: "vfs_ext",
    authors: ["The Ferrofabric developers"],
    description: "The VFS and netfs, beyond the in-tree kernel crate",
    license: "GPL",
}

struct Library;

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library)
    }
}
