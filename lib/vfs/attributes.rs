// SPDX-License-Identifier: GPL-2.0

//! The attributes of a file that `stat(2)` shows.

use kernel::bindings;
use vfs_ext_sys as raw;

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with data.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl Kind {
    /// Returns the kind's bits of a mode.
    pub(crate) const fn mode(self) -> u16 {
        // CAST: The bits are below 2^16.
        match self {
            Self::Regular => bindings::S_IFREG as u16,
            Self::Directory => bindings::S_IFDIR as u16,
            Self::Symlink => bindings::S_IFLNK as u16,
        }
    }

    /// Returns the kind of a file of this mode, if it is one that the abstraction makes.
    pub(crate) fn of_mode(mode: u16) -> Option<Self> {
        // CAST: The mask is below 2^16.
        let bits = mode & bindings::S_IFMT as u16;
        [Self::Regular, Self::Directory, Self::Symlink]
            .into_iter()
            .find(|kind| kind.mode() == bits)
    }
}

/// A time since the begin of 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds; what is above 999,999,999 counts as that.
    pub nanoseconds: u32,
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The kind of the file.
    pub kind: Kind,
    /// Permissions, at most `0o7777`.
    pub permissions: u16,
    /// Its owner, as the user namespace of the mount numbers them.
    pub uid: u32,
    /// Its group, in the same way.
    pub gid: u32,
    /// Its size in bytes, at most 2^63 - 1; of a symbolic link the length of its target.
    pub size: u64,
    /// The number of its links, at least 1.
    pub links: u32,
    /// The time of the last read.
    pub accessed: Timestamp,
    /// The time of the last change of its data.
    pub modified: Timestamp,
    /// The time of the last change of its attributes.
    pub changed: Timestamp,
}

impl Attributes {
    /// Returns the attributes for C; values out of range are brought into range.
    pub(crate) fn to_raw(self) -> raw::vfs_ext_attributes {
        let size = self.size.min(i64::MAX as u64);
        let nanoseconds = |time: Timestamp| time.nanoseconds.min(999_999_999);
        raw::vfs_ext_attributes {
            size,
            blocks: size.div_ceil(512),
            atime_s: self.accessed.seconds,
            mtime_s: self.modified.seconds,
            ctime_s: self.changed.seconds,
            atime_ns: nanoseconds(self.accessed),
            mtime_ns: nanoseconds(self.modified),
            ctime_ns: nanoseconds(self.changed),
            uid: self.uid,
            gid: self.gid,
            links: self.links.max(1),
            mode: self.kind.mode() | (self.permissions & 0o7777),
        }
    }
}
