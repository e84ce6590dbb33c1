// SPDX-License-Identifier: GPL-2.0

//! The attributes that `stat(2)` shows, from what gfmd tells.

use kernel::time::{
    Instant,
    Monotonic, //
};
use vfs_ext::{
    Attributes,
    Key,
    Kind,
    Timestamp, //
};

use crate::proto::{
    attr::{
        Attr,
        FileType,
        Mode,
        Object,
        Time, //
    },
    identity::Observation, //
};

/// Returns the milliseconds since a time.
pub(super) fn since_ms(at: Instant<Monotonic>) -> u64 {
    u64::try_from(at.elapsed().as_millis()).unwrap_or(0)
}

/// The attributes of an object that gfmd has told, as this mount shows them.
#[derive(Clone, Copy)]
pub(super) struct Told {
    pub(super) observed: Observation,
    pub(super) attributes: Attributes,
    /// The time at which gfmd was asked.
    pub(super) asked_at: Instant<Monotonic>,
}

impl Told {
    /// Returns the age that this may have, in milliseconds: the time since gfmd was asked.
    pub(super) fn age_ms(&self) -> u64 {
        since_ms(self.asked_at)
    }

    /// Returns the object.
    pub(super) fn object(&self) -> Object {
        Object::new(self.observed.id, self.observed.file_type)
    }

    /// Returns the key of the inode of the object.
    ///
    /// A file keeps its inode when it is rewritten, which makes a new generation: the label of the
    /// inode knows it, and the pages of the old one are dropped. Of a directory or a link another
    /// generation is another object with the same number.
    pub(super) fn key(&self) -> Key {
        let id = self.observed.id;
        let generation = match self.observed.file_type {
            FileType::Regular => 0,
            FileType::Directory => id.gen << 2 | 1,
            FileType::SymbolicLink => id.gen << 2 | 2,
        };
        Key {
            number: id.inum,
            generation,
        }
    }
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Regular => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::SymbolicLink => Kind::Symlink,
    }
}

/// Returns the permissions without those that make who runs a file its owner (`S_ISUID`,
/// `S_ISGID`): whom it belongs to here is a matter of options, and Gfarm's users must not become
/// others by it.
fn permissions(mode: Mode) -> u16 {
    match mode.file_type {
        FileType::Regular => mode.permissions & 0o1777,
        FileType::Directory | FileType::SymbolicLink => mode.permissions,
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp {
        seconds: time.sec,
        nanoseconds: time.nsec,
    }
}

/// Returns the attributes of an object that this user and this group own here.
pub(super) fn attributes(attr: &Attr<'_>, (uid, gid): (u32, u32)) -> Attributes {
    Attributes {
        kind: kind(attr.mode.file_type),
        permissions: permissions(attr.mode),
        uid,
        gid,
        size: attr.size,
        links: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
        accessed: timestamp(attr.atime),
        modified: timestamp(attr.mtime),
        changed: timestamp(attr.ctime),
    }
}
