// SPDX-License-Identifier: GPL-2.0

//! The layout of a request in a chunk: `data | user message | head`, parsed from the head.
//!
//! The server copies the head once ([`head_len`] is its length) and parses the copy, so that later
//! writes of the client to the chunk do not change what was checked.

use core::ops::Range;

use zerocopy::FromBytes;

use super::wire::{
    Descriptor,
    ReadHead,
    ReadMessage,
    WriteHead,
    NEED_INVAL,
    READ,
    TAIL,
    TAIL_LEN_MAX,
    WRITE,
    WRITE_WITH_IMM, //
};
use ferro_proto::errno::Errno;

/// The maximum number of bytes of a head: that of a read with its descriptor.
pub const HEAD_MAX: usize = size_of::<ReadHead>() + size_of::<Descriptor>();

/// The number of bytes of the user message of nearly all requests: RNBD's of a read or write.
pub const USER_USUAL: u16 = 32;

/// The start of the usual head of a write, which is all of it.
const USUAL_WRITE: u32 = (WRITE as u32) | ((USER_USUAL as u32) << 16);
/// The start of the usual head of a read, which is all before its descriptor.
const USUAL_READ: u64 =
    (READ as u64) | ((USER_USUAL as u64) << 16) | ((WRITE_WITH_IMM as u64) << 32) | (1 << 48);

/// A request, checked against its chunk.
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
    /// The number of data bytes, from the start of the chunk.
    pub data_len: u32,
    /// The number of bytes of the user message, directly after the data.
    pub usr_len: u16,
}

/// A request with space for data at the start of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The number of bytes to read, to the start of the chunk.
    pub data_len: u32,
    /// The number of bytes of the user message, directly after the space for the data.
    pub usr_len: u16,
    /// The destination of the data, exactly `data_len` bytes but for a tail; `None` if and only if
    /// `data_len` is 0.
    pub reply: Option<Reply>,
}

/// The client's memory for the data of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Remote address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// The messages that the client wants after the data.
    pub then: Then,
}

/// The messages that a client wants after the data of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The response alone.
    Response,
    /// The invalidation of its key before the response.
    Invalidation,
    /// None, if the response is the immediate of the write of the data.
    Nothing,
    /// The response with so many bytes of the end of the data, 1 to [`TAIL_LEN_MAX`], for which the
    /// client's memory has no room.
    Tail {
        /// The number of bytes, fewer than those of the data.
        len: u8,
        /// The key is to be invalidated before the response.
        invalidate: bool,
    },
}

/// The reason why a request is rejected. The server closes the path without an answer, as the
/// client violates the protocol (D11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The head reaches past the end of the chunk (D5).
    Truncated,
    /// The message is neither a read nor a write.
    Kind(u16),
    /// The user message would begin before the chunk (D11).
    UserLength(u16),
    /// More than one descriptor, or none for a read of data.
    DescriptorCount(u16),
    /// The descriptor's length is not that of the read (D6).
    DescriptorLength(u32),
}

impl Malformed {
    /// Returns the error of all variants.
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

    /// Returns the range of the user message in the chunk. It ends at the offset of the head, so it
    /// is within the chunk.
    #[inline]
    pub const fn user(&self) -> Range<usize> {
        let (start, len) = match self {
            Request::Write(w) => (w.data_len, w.usr_len),
            Request::Read(r) => (r.data_len, r.usr_len),
        };
        start as usize..(start as usize).wrapping_add(len as usize)
    }
}

/// Returns the number of bytes to copy from the chunk at `offset`, the offset of the request's
/// immediate: at most [`HEAD_MAX`], and not past `chunk_size`.
#[inline]
pub const fn head_len(offset: u32, chunk_size: u32) -> usize {
    let left = chunk_size.saturating_sub(offset) as usize;
    if left < HEAD_MAX {
        left
    } else {
        HEAD_MAX
    }
}

/// Parses the head of a request as nearly all are: a write, or a read into memory that stays
/// registered, with a user message of [`USER_USUAL`] bytes. Servers call this first and parse all
/// others by [`parse`], which says what is wrong with one.
#[inline(always)]
pub fn parse_usual(head: &[u8; HEAD_MAX], offset: u32) -> Option<Request> {
    let usr_len = USER_USUAL;
    let data_len = offset.checked_sub(u32::from(usr_len))?;
    let start = u64::from_le_bytes(*head.first_chunk()?);
    // CAST: A write's head is the first half.
    if start as u32 == USUAL_WRITE {
        return Some(Request::Write(WriteRequest { data_len, usr_len }));
    }
    let ReadMessage { reply, .. } = ReadMessage::ref_from_bytes(head).ok()?;
    let is_usual = start == USUAL_READ && reply.len.get() == data_len && data_len != 0;
    is_usual.then(|| {
        Request::Read(ReadRequest {
            data_len,
            usr_len,
            reply: Some(Reply {
                addr: reply.addr.get(),
                rkey: reply.key.get(),
                then: Then::Nothing,
            }),
        })
    })
}

/// Parses `head`, the [`head_len`] bytes of the chunk at `offset`.
///
/// All ranges that it returns end at or before `offset`, which `Geometry::split` has checked to be
/// within the chunk.
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
        // The flush of a C client is a read of no bytes.
        0 if data_len == 0 => None,
        1 => {
            let (desc, _) = Descriptor::ref_from_prefix(rest).map_err(|_| Malformed::Truncated)?;
            let (flags, len) = (read.flags.get(), desc.len.get());
            let then = if len != data_len || data_len == 0 {
                tail(flags, len, data_len)?
            } else if flags & NEED_INVAL != 0 {
                Then::Invalidation
            } else if flags & WRITE_WITH_IMM != 0 {
                Then::Nothing
            } else {
                Then::Response
            };
            Some(Reply {
                addr: desc.addr.get(),
                rkey: desc.key.get(),
                then,
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

/// Returns the tail of a read whose descriptor has another length than its data.
#[cold]
fn tail(flags: u16, len: u32, data_len: u32) -> Result<Then, Malformed> {
    match data_len.checked_sub(len) {
        Some(tail @ 1..=TAIL_LEN_MAX) if flags & TAIL != 0 && len != 0 => Ok(Then::Tail {
            // CAST: At most `TAIL_LEN_MAX`.
            len: tail as u8,
            invalidate: flags & NEED_INVAL != 0,
        }),
        _ => Err(Malformed::DescriptorLength(len)),
    }
}

/// The request does not fit a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Returns the offset of a request's head in the chunk, for the immediate. `hdr_len` is the head
/// with its descriptors, 4, 8 or 24 bytes.
///
/// Returns [`TooLarge`] (C: `EMSGSIZE`) if user message and head exceed `max_hdr_size` or the
/// request exceeds the chunk.
#[inline]
pub const fn head_offset(
    data_len: u32,
    usr_len: u16,
    hdr_len: u32,
    max_hdr_size: u32,
    chunk_size: u32,
) -> Result<u32, TooLarge> {
    // No sum of these reaches 64 bits.
    let (usr_len, hdr_len) = (usr_len as u64, hdr_len as u64);
    if usr_len.saturating_add(hdr_len) > max_hdr_size as u64 {
        return Err(TooLarge);
    }
    let offset = usr_len.saturating_add(data_len as u64);
    if offset.saturating_add(hdr_len) > chunk_size as u64 {
        return Err(TooLarge);
    }
    // CAST: within the chunk.
    Ok(offset as u32)
}

/// The reason why a client rejects a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RkeyError {
    /// The bytes are shorter than the message.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// The key is for another chunk than that of the response.
    ForeignChunk(u16),
}

/// Parses the payload of a response with `always_invalidate=Y`: the new key of chunk `msg_id`,
/// which the response's immediate names. A tail may follow.
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
