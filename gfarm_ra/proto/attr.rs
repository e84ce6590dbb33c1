// SPDX-License-Identifier: GPL-2.0

//! The statements of gfmd about objects: attributes, entries of directories, hosts with a replica.

use super::{
    name::{
        Name,
        NAME_LEN_MAX, //
    },
    operation::ReplyError,
    xdr::{
        Decoder,
        Malformed, //
    },
    LABEL_LEN_MAX,
};

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link.
    SymbolicLink,
}

impl FileType {
    /// Returns the number in requests (`GFS_DT_*`, which are the kernel's `DT_*`).
    pub const fn to_wire(self) -> u32 {
        match self {
            Self::Directory => 4,
            Self::Regular => 8,
            Self::SymbolicLink => 10,
        }
    }

    /// Returns the type that a mode has (`S_IFMT`); Gfarm has no others.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        match mode >> 12 {
            0o04 => Some(Self::Directory),
            0o10 => Some(Self::Regular),
            0o12 => Some(Self::SymbolicLink),
            _ => None,
        }
    }
}

/// The identity of an object and of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the object, not 0, which is used again after its end.
    pub inum: u64,
    /// The number of the content: each close after a write makes a larger one.
    pub gen: u64,
}

impl FileId {
    /// Reads `l inum, l gen`. No object has the number 0.
    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, ReplyError> {
        let inum = from.u64()?;
        if inum == 0 {
            return Err(Malformed::Value { field: "inum" }.into());
        }
        let gen = from.u64()?;
        Ok(Self { inum, gen })
    }
}

/// An object, as it is told from another one that has its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    inum: u64,
    /// The generation of a directory or a link, which does not change. That of a file is its
    /// content's, of which its label knows whose it is ([`identity`](super::identity)).
    gen: Option<u64>,
}

impl Object {
    /// Returns the object that was told of.
    pub const fn new(id: FileId, file_type: FileType) -> Self {
        let gen = match file_type {
            FileType::Regular => None,
            FileType::Directory | FileType::SymbolicLink => Some(id.gen),
        };
        Self { inum: id.inum, gen }
    }

    /// Returns its number.
    pub const fn inum(&self) -> u64 {
        self.inum
    }

    /// Returns whether this identity is its own.
    pub fn is(&self, id: FileId) -> bool {
        self.inum == id.inum && self.gen.is_none_or(|gen| gen == id.gen)
    }
}

/// The type and the permissions of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The type.
    pub file_type: FileType,
    /// The permissions, 0 to 07777.
    pub permissions: u16,
}

impl Mode {
    /// Reads `i mode`.
    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, ReplyError> {
        let mode = from.u32()?;
        let file_type = FileType::from_mode(mode).ok_or(Malformed::Value { field: "mode" })?;
        Ok(Self {
            file_type,
            // CAST: 12 bits.
            permissions: (mode & 0o7777) as u16,
        })
    }
}

/// The maximum of the nanoseconds of a time.
const NSEC_MAX: u32 = 999_999_999;

/// A time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

impl Time {
    /// Reads `l sec, i nsec`. The owner of a file sets them, and gfmd does not check them:
    /// nanoseconds above the maximum are the maximum.
    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, ReplyError> {
        Ok(Self {
            sec: from.i64()?,
            nsec: from.u32()?.min(NSEC_MAX),
        })
    }
}

/// Reads a size or a position: `l`, not negative.
pub(super) fn decode_size(from: &mut Decoder<'_>, field: &'static str) -> Result<u64, ReplyError> {
    u64::try_from(from.i64()?).map_err(|_| Malformed::Value { field }.into())
}

/// The attributes of an object (`struct gfs_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The identity.
    pub id: FileId,
    /// Type and permissions.
    pub mode: Mode,
    /// The number of names.
    pub nlink: u64,
    /// The owner's name.
    pub user: &'a [u8],
    /// The group's name.
    pub group: &'a [u8],
    /// The size when a writer has closed the file for the last time, in bytes, up to `i64::MAX`.
    pub size: u64,
    /// The number of replicas.
    pub ncopy: u64,
    /// The time of the last read.
    pub atime: Time,
    /// The time of the last write.
    pub mtime: Time,
    /// The time of the last change.
    pub ctime: Time,
}

impl<'a> Attr<'a> {
    /// Reads the fields of a reply to `GFM_PROTO_FSTAT`.
    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, ReplyError> {
        Ok(Self {
            id: FileId::decode(from)?,
            mode: Mode::decode(from)?,
            nlink: from.u64()?,
            user: from.bytes("user", LABEL_LEN_MAX)?,
            group: from.bytes("group", LABEL_LEN_MAX)?,
            size: decode_size(from, "size")?,
            ncopy: from.u64()?,
            atime: Time::decode(from)?,
            mtime: Time::decode(from)?,
            ctime: Time::decode(from)?,
        })
    }
}

/// The name in a directory's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryName<'a> {
    /// `.`, the directory itself.
    Current,
    /// `..`, its parent.
    Parent,
    /// An object in it.
    Name(Name<'a>),
}

impl<'a> EntryName<'a> {
    /// Returns its bytes, by which gfmd orders the entries.
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Current => b".",
            Self::Parent => b"..",
            Self::Name(name) => name.as_bytes(),
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: EntryName<'a>,
    /// The attributes of the object.
    pub attr: Attr<'a>,
}

impl<'a> DirEntry<'a> {
    /// Reads `b name` and attributes.
    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, ReplyError> {
        let name = match from.bytes("name", NAME_LEN_MAX)? {
            b"." => EntryName::Current,
            b".." => EntryName::Parent,
            // A name with a slash would lead out of the directory.
            name => match Name::new(name) {
                Ok(name) => EntryName::Name(name),
                Err(_) => return Err(Malformed::Value { field: "name" }.into()),
            },
        };
        Ok(Self {
            name,
            attr: Attr::decode(from)?,
        })
    }
}

/// A gfsd with a replica of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaHost<'a> {
    /// The host's name in gfmd, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The TCP port, not 0.
    pub port: u16,
    /// The number of CPUs.
    pub ncpu: u32,
    /// The average load of a minute, times 2048.
    pub load: u32,
    /// gfmd believes that the host is up.
    pub is_available: bool,
    /// `load` is known.
    pub has_load: bool,
}

/// A flag of `GFM_PROTO_SCHEDULE_FILE`: the host is up (`GFM_PROTO_SCHED_FLAG_HOST_AVAIL`).
const HOST_AVAILABLE: u32 = 1;

/// The load is known (`GFM_PROTO_SCHED_FLAG_LOADAVG_AVAIL`).
const LOAD_AVAILABLE: u32 = 2;

impl<'a> ReplicaHost<'a> {
    /// Reads one host of a reply to `GFM_PROTO_SCHEDULE_FILE`.
    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, ReplyError> {
        let name = from.bytes("host", LABEL_LEN_MAX)?;
        if name.is_empty() || name.contains(&0) {
            return Err(Malformed::Value { field: "host" }.into());
        }
        let port = match u16::try_from(from.u32()?) {
            Ok(port @ 1..) => port,
            _ => return Err(Malformed::Value { field: "port" }.into()),
        };
        let (ncpu, load) = (from.u32()?, from.u32()?);
        // The times of the figures, used and free space, and the round trip, which gfmd never sets.
        from.raw(4 * 8 + 4)?;
        let flags = from.u32()?;
        Ok(Self {
            name,
            port,
            ncpu,
            load,
            is_available: flags & HOST_AVAILABLE != 0,
            has_load: flags & LOAD_AVAILABLE != 0,
        })
    }
}
