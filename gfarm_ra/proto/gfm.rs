// SPDX-License-Identifier: GPL-2.0

//! The requests to gfmd.
//!
//! Most work on the *current descriptor* of a compound: [`Base`] or [`Open`] sets it, the requests
//! after it use it.

use core::fmt;

use super::{
    attr::{
        decode_size,
        Attr,
        DirEntry,
        FileId,
        FileType,
        Mode,
        ReplicaHost, //
    },
    command::*,
    error::decode_status,
    name::{
        Name,
        Path, //
    },
    operation::{
        ListOperation,
        Operation,
        ReplyError, //
    },
    xdr::{
        Decoder,
        Encoder,
        Malformed, //
    },
    LINK_LEN_MAX,
};

/// A descriptor that a process of gfmd has exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fd(u32);

impl Fd {
    /// Converts a number; `None` for one that is negative in C.
    pub const fn new(raw: u32) -> Option<Self> {
        if raw > i32::MAX as u32 {
            None
        } else {
            Some(Self(raw))
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The secret of a process, with which other connections join it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProcessKey(pub [u8; 32]);

impl fmt::Debug for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessKey(..)")
    }
}

/// A process of gfmd, which owns descriptors, and its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The number that gfmd has given it.
    pub pid: u64,
    /// The secret that the client has given it.
    pub key: ProcessKey,
}

impl Process {
    /// Writes `i type, b key, l pid`.
    pub(super) fn encode(&self, to: &mut Encoder<'_>) {
        encode_key(&self.key, to);
        to.u64(self.pid);
    }
}

fn encode_key(key: &ProcessKey, to: &mut Encoder<'_>) {
    to.u32(GFM_PROTO_PROCESS_KEY_TYPE_SHAREDSECRET);
    to.bytes(&key.0);
}

/// Requests without fields, of which the reply has none either.
macro_rules! bare_operations {
    ($($(#[$doc:meta])* $name:ident = $command:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;

        impl Operation for $name {
            type Reply<'a> = ();

            fn encode(&self, to: &mut Encoder<'_>) {
                to.u32($command);
            }

            fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
                decode_status(from)
            }
        }
    )*};
}

bare_operations! {
    /// Closes the current descriptor, also if it was exported.
    Close = GFM_PROTO_CLOSE,
    /// Ends the process of the connection; its descriptors are closed.
    ProcessFree = GFM_PROTO_PROCESS_FREE,
}

/// The first descriptor of a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The root directory, opened to look up names.
    Root,
    /// The root directory, opened to read its entries.
    RootToRead,
    /// A descriptor that was exported.
    Fd(Fd),
}

impl Operation for Base {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Self::Root => {
                to.u32(GFM_PROTO_OPEN_ROOT);
                to.u32(GFARM_FILE_LOOKUP);
            }
            Self::RootToRead => {
                to.u32(GFM_PROTO_OPEN_ROOT);
                to.u32(GFARM_FILE_RDONLY);
            }
            Self::Fd(fd) => {
                to.u32(GFM_PROTO_PUT_FD);
                to.u32(fd.get());
            }
        }
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

/// Opens the directories of a path one after another; the last one is the current descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk<'n>(pub Path<'n>);

impl Walk<'_> {
    /// Reads the answers for one directory, and returns which one it is.
    pub(super) fn decode_directory(from: &mut Decoder<'_>) -> Result<FileId, ReplyError> {
        let opened = Opened::decode(from)?;
        decode_status(from)?;
        Ok(opened.id)
    }
}

impl Operation for Walk<'_> {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        for name in self.0.names() {
            Open::to_look_up(name).encode(to);
            VerifyType(FileType::Directory).encode(to);
        }
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        for _ in self.0.names() {
            Self::decode_directory(from)?;
        }
        Ok(())
    }
}

/// The reply to [`Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The identity of the object.
    pub id: FileId,
    /// Type and permissions.
    pub mode: Mode,
}

impl Opened {
    /// Reads the answer to [`Open`].
    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, ReplyError> {
        decode_status(from)?;
        Ok(Self {
            id: FileId::decode(from)?,
            mode: Mode::decode(from)?,
        })
    }
}

/// Opens a name of the current directory; what it opened is the current descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'n> {
    name: Name<'n>,
    flags: u32,
}

impl<'n> Open<'n> {
    /// Opens for names or attributes.
    pub const fn to_look_up(name: Name<'n>) -> Self {
        Self {
            name,
            flags: GFARM_FILE_LOOKUP,
        }
    }

    /// Opens for reading.
    pub const fn to_read(name: Name<'n>) -> Self {
        Self {
            name,
            flags: GFARM_FILE_RDONLY,
        }
    }
}

impl Operation for Open<'_> {
    type Reply<'a> = Opened;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_OPEN);
        to.bytes(self.name.as_bytes());
        to.u32(self.flags);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Opened, ReplyError> {
        Opened::decode(from)
    }
}

/// Fails if the current object has another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyType(pub FileType);

impl Operation for VerifyType {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_VERIFY_TYPE);
        to.u32(self.0.to_wire());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

/// Exports the current descriptor: it is open until [`Close`], and counts against the limit of the
/// process.
///
/// Stands at the end of a compound: what is exported before a request that fails stays open, and
/// the client does not know its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFd;

impl Operation for GetFd {
    type Reply<'a> = Fd;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_GET_FD);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Fd, ReplyError> {
        decode_status(from)?;
        Fd::new(from.u32()?).ok_or(Malformed::Value { field: "fd" }.into())
    }
}

/// Returns the attributes of the current object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fstat;

impl Operation for Fstat {
    type Reply<'a> = Attr<'a>;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_FSTAT);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Attr<'a>, ReplyError> {
        decode_status(from)?;
        Attr::decode(from)
    }
}

/// Returns the target of the current symbolic link: 1 to [`LINK_LEN_MAX`] bytes without NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readlink;

impl Operation for Readlink {
    type Reply<'a> = &'a [u8];

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_READLINK);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<&'a [u8], ReplyError> {
        decode_status(from)?;
        let target = from.bytes("link", LINK_LEN_MAX)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Malformed::Value { field: "link" }.into());
        }
        Ok(target)
    }
}

/// Sets the position in the current directory to that of an entry, counted from 0, and returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek(pub u64);

impl Operation for Seek {
    type Reply<'a> = u64;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_SEEK);
        to.u64(self.0);
        to.u32(GFARM_SEEK_SET);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<u64, ReplyError> {
        decode_status(from)?;
        decode_size(from, "offset")
    }
}

/// Returns the next entries of the current directory, at most this many; none at its end.
///
/// gfmd limits the number to 10,240.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetDirEntsPlus(pub u32);

impl ListOperation for GetDirEntsPlus {
    type Item<'a> = DirEntry<'a>;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_GETDIRENTSPLUS);
        to.u32(self.0);
    }

    fn count_max(&self) -> u32 {
        self.0
    }

    fn decode_item<'a>(from: &mut Decoder<'a>) -> Result<DirEntry<'a>, ReplyError> {
        DirEntry::decode(from)
    }
}

/// The maximum number of hosts of one answer: more than any Gfarm has.
const HOSTS_MAX: u32 = 65_536;

/// Returns the gfsds from which the current file can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleFile;

impl ListOperation for ScheduleFile {
    type Item<'a> = ReplicaHost<'a>;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_SCHEDULE_FILE);
        // The domain of the hosts: any.
        to.bytes(b"");
    }

    fn count_max(&self) -> u32 {
        HOSTS_MAX
    }

    fn decode_item<'a>(from: &mut Decoder<'a>) -> Result<ReplicaHost<'a>, ReplyError> {
        ReplicaHost::decode(from)
    }
}

/// The space of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Used space in KiB.
    pub used_kib: u64,
    /// Free space in KiB.
    pub avail_kib: u64,
    /// The number of files.
    pub files: u64,
}

/// Reads a sum. gfmd subtracts what was removed from what a gfsd has told: the sum can be negative,
/// as after a sparse file was removed, and is 0 then.
fn decode_total(from: &mut Decoder<'_>) -> Result<u64, ReplyError> {
    Ok(u64::try_from(from.i64()?).unwrap_or(0))
}

/// Returns how full the file system is. Not part of a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs;

impl Operation for Statfs {
    type Reply<'a> = Usage;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_STATFS);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Usage, ReplyError> {
        decode_status(from)?;
        Ok(Usage {
            used_kib: decode_total(from)?,
            avail_kib: decode_total(from)?,
            files: decode_total(from)?,
        })
    }
}

/// Creates a process with this key, which the connection joins, and returns its number. Not part of
/// a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessAlloc<'k>(pub &'k ProcessKey);

impl Operation for ProcessAlloc<'_> {
    type Reply<'a> = u64;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_PROCESS_ALLOC);
        encode_key(self.0, to);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<u64, ReplyError> {
        decode_status(from)?;
        Ok(from.u64()?)
    }
}

/// Joins a process that another connection has created. Not part of a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSet<'p>(pub &'p Process);

impl Operation for ProcessSet<'_> {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFM_PROTO_PROCESS_SET);
        self.0.encode(to);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}
