// SPDX-License-Identifier: GPL-2.0

//! The requests to a gfsd.
//!
//! A gfsd carries out one request at a time, and does not see a second one that arrives before it
//! has answered the first: a connection has at most one outstanding request. The bytes of files are
//! not decoded: the header tells how many follow, and the driver receives them into its pages.

use super::{
    attr::{
        decode_size,
        Time, //
    },
    command::*,
    error::{
        decode_status,
        GfarmError, //
    },
    gfm::{
        Fd,
        Process, //
    },
    operation::{
        Operation,
        ReplyError, //
    },
    xdr::{
        Decoder,
        Encoder, //
    },
    READ_LEN_MAX,
};

/// Joins a process of gfmd: the first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSet<'p>(pub &'p Process);

impl Operation for ProcessSet<'_> {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_PROCESS_SET);
        self.0.encode(to);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

/// Joins a process of a restarted gfmd; what was open is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessReset<'p> {
    /// The new process.
    pub process: &'p Process,
    /// The number of times that the client has seen gfmd restart.
    pub failover_count: u32,
}

impl Operation for ProcessReset<'_> {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_PROCESS_RESET);
        self.process.encode(to);
        to.u32(self.failover_count);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

/// Opens the file of a descriptor of gfmd. One connection only may have it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open(pub Fd);

impl Operation for Open {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_OPEN);
        to.u32(self.0.get());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

/// Closes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close(pub Fd);

impl Operation for Close {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_CLOSE);
        to.u32(self.0.get());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

/// A file as a gfsd has it, with the bytes of writers that have not closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAttr {
    /// The size in bytes, up to `i64::MAX`.
    pub size: u64,
    /// The time of the last read.
    pub atime: Time,
    /// The time of the last write.
    pub mtime: Time,
}

impl LiveAttr {
    /// Returns whether no byte was written between two answers of one gfsd, to the resolution of
    /// its clock.
    pub fn is_same_content(&self, other: &Self) -> bool {
        self.size == other.size && self.mtime == other.mtime
    }
}

/// Returns size and times of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fstat(pub Fd);

impl Operation for Fstat {
    type Reply<'a> = LiveAttr;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_FSTAT);
        to.u32(self.0.get());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<LiveAttr, ReplyError> {
        decode_status(from)?;
        Ok(LiveAttr {
            size: decode_size(from, "size")?,
            atime: Time::decode(from)?,
            mtime: Time::decode(from)?,
        })
    }
}

/// The range of a read.
///
/// # Invariants
///
/// `offset + len` is at most `i64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    offset: u64,
    len: u64,
}

impl Range {
    /// Checks a range; `None` if it ends past the end of every file.
    pub const fn new(offset: u64, len: u64) -> Option<Self> {
        match offset.checked_add(len) {
            // INVARIANT: The end was just checked.
            Some(end) if end <= i64::MAX as u64 => Some(Self { offset, len }),
            _ => None,
        }
    }

    /// Returns the position of the first byte.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Returns whether there is no byte in it.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Reads up to [`READ_LEN_MAX`] bytes of a range: of a longer one its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pread {
    /// The descriptor.
    pub fd: Fd,
    /// The range.
    pub range: Range,
}

/// The header of the reply to [`Pread`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadHeader {
    /// The number of bytes that follow, at most as many as were asked for.
    pub len: u32,
    /// The file ends behind them.
    pub is_eof: bool,
}

impl Pread {
    /// Returns the number of bytes that are asked for.
    pub fn len(&self) -> u32 {
        let len = self.range.len().min(READ_LEN_MAX.into());
        // CAST: At most `READ_LEN_MAX`.
        len as u32
    }

    /// Returns whether no byte is asked for.
    pub const fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl Operation for Pread {
    type Reply<'a> = ReadHeader;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_PREAD);
        to.u32(self.fd.get());
        to.u32(self.len());
        to.u64(self.range.offset());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<ReadHeader, ReplyError> {
        decode_status(from)?;
        let len = from.count("data", self.len())?;
        Ok(ReadHeader {
            len,
            is_eof: len < self.len(),
        })
    }
}

/// Reads a range in chunks that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkRead {
    /// The descriptor.
    pub fd: Fd,
    /// The range.
    pub range: Range,
}

impl Operation for BulkRead {
    type Reply<'a> = BulkReply;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(GFS_PROTO_BULKREAD);
        to.u32(self.fd.get());
        to.u64(self.range.len());
        to.u64(self.range.offset());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<BulkReply, ReplyError> {
        decode_status(from)?;
        Ok(BulkReply {
            left: self.range.len(),
            is_over: false,
        })
    }
}

/// The part of the reply to [`BulkRead`] that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkPart {
    /// The number of bytes of the file that follow, at least 1.
    Chunk(u32),
    /// No bytes follow any more; the connection is free for the next request.
    End {
        /// The file ends before the end of the range.
        is_eof: bool,
    },
}

/// Reads the chunk headers of the reply to [`BulkRead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkReply {
    /// The bytes of the range that were not announced yet.
    left: u64,
    is_over: bool,
}

impl BulkReply {
    /// Reads the next header. The caller receives the bytes of a chunk itself, before the next
    /// call; after the end it returns the end again.
    ///
    /// An error of the server comes behind the last chunk: the bytes before it are valid.
    pub fn decode(&mut self, from: &mut Decoder<'_>) -> Result<BulkPart, ReplyError> {
        let end = BulkPart::End {
            is_eof: self.left != 0,
        };
        if self.is_over {
            return Ok(end);
        }
        let max = self.left.min(READ_LEN_MAX.into());
        // CAST: At most `READ_LEN_MAX`.
        let len = from.count("chunk", max as u32)?;
        if len != 0 {
            self.left = self.left.wrapping_sub(len.into());
            return Ok(BulkPart::Chunk(len));
        }
        let status = from.u32()?;
        self.is_over = true;
        match GfarmError::new(status) {
            None => Ok(end),
            Some(error) => Err(ReplyError::Server(error)),
        }
    }
}
