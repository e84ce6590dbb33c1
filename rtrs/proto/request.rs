// SPDX-License-Identifier: GPL-2.0

//! What a client has put into a chunk: `data | user message | head`, found from the head.
//!
//! The server copies the head out once ([`head_len`] says how much) and parses the copy, so that a
//! client that goes on writing to the chunk changes nothing that was checked.

use core::ops::Range;

use zerocopy::FromBytes;

use super::wire::{
    Descriptor,
    ReadHead,
    WriteHead,
    NEED_INVAL,
    READ,
    WRITE, //
};
use ferro_proto::errno::Errno;

/// Most bytes of a head: a read's, with its descriptor.
pub const HEAD_MAX: usize = size_of::<ReadHead>() + size_of::<Descriptor>();

/// A request, checked against the chunk it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Data goes from the client to the server.
    Write(WriteRequest),
    /// Data goes from the server to the client.
    Read(ReadRequest),
}

/// A request with data at the start of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// Bytes of data, from the start of the chunk.
    pub data_len: u32,
    /// Bytes of user message, right behind the data.
    pub usr_len: u16,
}

/// A request with room for data at the start of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Bytes asked for, to be put at the start of the chunk.
    pub data_len: u32,
    /// Bytes of user message, right behind the hole for the data.
    pub usr_len: u16,
    /// Where the data goes, `data_len` bytes exactly; `None` iff `data_len` is 0.
    pub reply: Option<Reply>,
}

/// The client's memory that a read is answered into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Remote address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// The client wants the key invalidated before the response.
    pub need_inval: bool,
}

/// Why a request is refused. The path that it came on is to be closed: it cannot be answered, for
/// its sender does not follow the protocol (D11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The head reaches past the end of the chunk (D5).
    Truncated,
    /// Neither a read nor a write.
    Kind(u16),
    /// The user message would begin before the chunk (D11).
    UserLength(u16),
    /// More than one descriptor, or none for a read of data.
    DescriptorCount(u16),
    /// The descriptor's length is not what is asked for (D6).
    DescriptorLength(u32),
}

impl Malformed {
    /// Returns the error that stands for all of these.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Malformed::Truncated => f.write_str("head reaches past the chunk"),
            Malformed::Kind(k) => write!(f, "message of unknown type {k}"),
            Malformed::UserLength(n) => {
                write!(f, "user message of {n} bytes begins before the chunk")
            }
            Malformed::DescriptorCount(n) => write!(f, "{n} descriptors"),
            Malformed::DescriptorLength(n) => {
                write!(f, "descriptor of {n} bytes, not what is read")
            }
        }
    }
}

impl Request {
    /// Returns the bytes of data, which start at the start of the chunk.
    #[inline]
    pub const fn data_len(&self) -> u32 {
        match self {
            Request::Write(w) => w.data_len,
            Request::Read(r) => r.data_len,
        }
    }

    /// Returns where in the chunk the user message is. Its end is the offset of the head, so it is
    /// within the chunk.
    #[inline]
    pub const fn user(&self) -> Range<usize> {
        let (start, len) = match self {
            Request::Write(w) => (w.data_len, w.usr_len),
            Request::Read(r) => (r.data_len, r.usr_len),
        };
        start as usize..(start as usize).wrapping_add(len as usize)
    }
}

/// Returns how many bytes to copy out of the chunk at `offset`, the offset of the request's
/// immediate: at most [`HEAD_MAX`], and never past `chunk_size`.
#[inline]
pub const fn head_len(offset: u32, chunk_size: u32) -> usize {
    let left = chunk_size.saturating_sub(offset) as usize;
    if left < HEAD_MAX {
        left
    } else {
        HEAD_MAX
    }
}

/// Parses `head`, which are the [`head_len`] bytes of the chunk at `offset`.
///
/// Everything that it returns lies before `offset`, which `Geometry::split` has found to be within
/// the chunk.
#[inline]
pub fn parse(head: &[u8], offset: u32) -> Result<Request, Malformed> {
    let (common, _) = WriteHead::ref_from_prefix(head).map_err(|_| Malformed::Truncated)?;
    let usr_len = common.usr_len.get();
    let kind = common.kind.get();
    if kind != WRITE && kind != READ {
        return Err(Malformed::Kind(kind));
    }
    let data_len = offset
        .checked_sub(u32::from(usr_len))
        .ok_or(Malformed::UserLength(usr_len))?;
    if kind == WRITE {
        return Ok(Request::Write(WriteRequest { data_len, usr_len }));
    }

    let (read, rest) = ReadHead::ref_from_prefix(head).map_err(|_| Malformed::Truncated)?;
    let reply = match read.sg_cnt.get() {
        // What a C client's flush looks like: a read of nothing.
        0 if data_len == 0 => None,
        1 => {
            let (desc, _) = Descriptor::ref_from_prefix(rest).map_err(|_| Malformed::Truncated)?;
            if desc.len.get() != data_len || data_len == 0 {
                return Err(Malformed::DescriptorLength(desc.len.get()));
            }
            Some(Reply {
                addr: desc.addr.get(),
                rkey: desc.key.get(),
                need_inval: read.flags.get() & NEED_INVAL != 0,
            })
        }
        n => return Err(Malformed::DescriptorCount(n)),
    };
    Ok(Request::Read(ReadRequest {
        data_len,
        usr_len,
        reply,
    }))
}

/// Why a client cannot send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Lays out a request for sending: returns the offset of its head in the chunk, which goes into
/// the immediate. `hdr_len` is the head with its descriptors, 4, 8 or 24 bytes.
///
/// Fails with [`TooLarge`] (C: `EMSGSIZE`) where user message and head exceed `max_hdr_size` or
/// all of it exceeds the chunk.
#[inline]
pub const fn head_offset(
    data_len: u32,
    usr_len: u16,
    hdr_len: u32,
    max_hdr_size: u32,
    chunk_size: u32,
) -> Result<u32, TooLarge> {
    let usr_len = usr_len as u32;
    if usr_len.saturating_add(hdr_len) > max_hdr_size {
        return Err(TooLarge);
    }
    let Some(offset) = data_len.checked_add(usr_len) else {
        return Err(TooLarge);
    };
    if offset.saturating_add(hdr_len) > chunk_size {
        return Err(TooLarge);
    }
    Ok(offset)
}

/// Why a client does not take a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RkeyError {
    /// Shorter than the message.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// The key is for another chunk than the response that brought it.
    ForeignChunk(u16),
}

/// Reads the payload of a response under `always_invalidate=Y`: the new key of chunk `msg_id`,
/// which the response's immediate named.
#[inline]
pub fn parse_rkey(bytes: &[u8], msg_id: u16) -> Result<u32, RkeyError> {
    let (msg, _) =
        super::wire::RkeyResponse::ref_from_prefix(bytes).map_err(|_| RkeyError::Truncated)?;
    if msg.kind.get() != super::wire::RKEY_RESPONSE {
        return Err(RkeyError::Kind(msg.kind.get()));
    }
    if msg.buf_id.get() != msg_id {
        return Err(RkeyError::ForeignChunk(msg.buf_id.get()));
    }
    Ok(msg.rkey.get())
}
