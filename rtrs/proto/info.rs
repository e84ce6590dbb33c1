// SPDX-License-Identifier: GPL-2.0

//! The first exchange of a path: the client names its session, the server hands out its chunks.

use zerocopy::{
    little_endian::U16,
    FromBytes, //
};

use super::{
    geometry::Geometry,
    wire::{
        Descriptor,
        InfoRequest,
        InfoResponse,
        INFO_REQUEST,
        INFO_RESPONSE, //
    }, //
};
use ferro_proto::{errno::Errno, text::Shown};

/// Why a session name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The message is not 272 bytes.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// No NUL within the field of 255 bytes, or more than 254 characters (D10).
    TooLong,
    /// No character at all.
    Empty,
    /// `/`, `.` or a control character: none is fit for a directory of sysfs and for the log.
    Forbidden(u8),
}

impl NameError {
    /// Returns the number with which the server refuses the session.
    pub const fn errno(self) -> Errno {
        match self {
            NameError::Truncated | NameError::Kind(_) => Errno::ECONNRESET,
            _ => Errno::EINVAL,
        }
    }
}

impl core::fmt::Display for NameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            NameError::Truncated => f.write_str("info request is not 272 bytes"),
            NameError::Kind(k) => write!(f, "message of type {k}, not an info request"),
            NameError::TooLong => f.write_str("session name has more than 254 characters"),
            NameError::Empty => f.write_str("session name is empty"),
            NameError::Forbidden(c) => {
                write!(f, "session name has a '{}' ({c:#04x}) in it", Shown(&[*c]))
            }
        }
    }
}

/// Checks a session name: 1 to 254 bytes, neither `/` nor `.` nor control characters.
pub fn check_name(name: &[u8]) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > super::SESSION_NAME_MAX {
        return Err(NameError::TooLong);
    }
    let forbidden = |c: &&u8| matches!(c, b'/' | b'.') || c.is_ascii_control();
    match name.iter().find(forbidden) {
        Some(c) => Err(NameError::Forbidden(*c)),
        None => Ok(()),
    }
}

impl InfoRequest {
    /// Makes the message that names a session.
    pub fn new(name: &[u8]) -> Result<Self, NameError> {
        check_name(name)?;
        let mut pathname = [0; 255];
        for (to, from) in pathname.iter_mut().zip(name) {
            *to = *from;
        }
        Ok(Self {
            kind: U16::new(INFO_REQUEST),
            pathname,
            reserved: [0; 15],
        })
    }

    /// Finds the message in what was received, without a copy.
    pub fn parse(bytes: &[u8]) -> Result<&Self, NameError> {
        let (msg, _) = Self::ref_from_prefix(bytes).map_err(|_| NameError::Truncated)?;
        if msg.kind.get() != INFO_REQUEST {
            return Err(NameError::Kind(msg.kind.get()));
        }
        Ok(msg)
    }

    /// Returns the session's name without its NUL, checked.
    pub fn name(&self) -> Result<&[u8], NameError> {
        let end = self
            .pathname
            .iter()
            .position(|c| *c == 0)
            .ok_or(NameError::TooLong)?;
        let name = self.pathname.get(..end).ok_or(NameError::TooLong)?;
        check_name(name)?;
        Ok(name)
    }
}

/// Returns the bytes of an info response with `sg_cnt` descriptors; a client receives into a
/// buffer of this size for its queue depth.
pub const fn response_len(sg_cnt: u16) -> usize {
    size_of::<InfoResponse>() + sg_cnt as usize * size_of::<Descriptor>()
}

/// Where one chunk is on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteChunk {
    /// Remote address of its first byte.
    pub addr: u64,
    /// Remote key; under `always_invalidate=Y` good for one request.
    pub rkey: u32,
}

/// Why a client refuses an info response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoError {
    /// Shorter than its header or its descriptors.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// The server refuses the session, for this reason.
    Refused(Errno),
    /// The number of descriptors is 0 or does not divide the queue depth.
    DescriptorCount(u16),
    /// A descriptor's length is not a multiple of the chunk size, or its end is past 2^64.
    DescriptorLength(u32),
    /// The descriptors cover fewer or more chunks than the session has.
    Coverage,
}

impl core::fmt::Display for InfoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            InfoError::Truncated => f.write_str("info response too short"),
            InfoError::Kind(k) => write!(f, "message of type {k}, not an info response"),
            InfoError::Refused(e) if *e == Errno::EPERM => {
                write!(f, "session name belongs to another client ({e})")
            }
            InfoError::Refused(e) if *e == Errno::EBUSY => {
                write!(
                    f,
                    "server still holds the previous session, try again later ({e})"
                )
            }
            InfoError::Refused(e) => write!(f, "server refused the session with {e}"),
            InfoError::DescriptorCount(n) => write!(f, "{n} descriptors do not divide the chunks"),
            InfoError::DescriptorLength(n) => {
                write!(f, "descriptor of {n} bytes is no whole chunks")
            }
            InfoError::Coverage => f.write_str("descriptors do not cover the chunks"),
        }
    }
}

/// The server's chunks, checked: as many as the session has, each of the session's size.
///
/// Under `always_invalidate=Y` a descriptor is one chunk, under `=N` a run of them.
///
/// # Invariants
///
/// Each descriptor's length is a non-zero multiple of the chunk size, no descriptor wraps round,
/// and together they are exactly the queue depth's number of chunks.
#[derive(Clone, Copy)]
pub struct Chunks<'a> {
    descriptors: &'a [Descriptor],
    chunk_size: u32,
}

impl<'a> Chunks<'a> {
    /// Checks what was received on the admin connection.
    pub fn parse(bytes: &'a [u8], geometry: &Geometry) -> Result<Self, InfoError> {
        let (head, rest) =
            InfoResponse::ref_from_prefix(bytes).map_err(|_| InfoError::Truncated)?;
        if head.kind.get() != INFO_RESPONSE {
            return Err(InfoError::Kind(head.kind.get()));
        }
        let sg_cnt = head.sg_cnt.get();
        // CAST: The field is a signed number.
        let refusal = Errno::new(head.refusal.get() as i32);
        if let Some(errno) = refusal.filter(|_| sg_cnt == 0) {
            return Err(InfoError::Refused(errno));
        }
        if geometry.queue_depth().checked_rem(sg_cnt) != Some(0) {
            return Err(InfoError::DescriptorCount(sg_cnt));
        }
        let (descriptors, _) = <[Descriptor]>::ref_from_prefix_with_elems(rest, sg_cnt.into())
            .map_err(|_| InfoError::Truncated)?;

        let mut chunks = 0u64;
        for d in descriptors {
            let len = d.len.get();
            let whole = len != 0 && len.checked_rem(geometry.chunk_size()) == Some(0);
            if !whole || d.addr.get().checked_add(u64::from(len)).is_none() {
                return Err(InfoError::DescriptorLength(len));
            }
            let count = len.checked_div(geometry.chunk_size()).unwrap_or(0);
            // At most 2^16 descriptors of 2^32 chunks each: no overflow.
            chunks = chunks.wrapping_add(u64::from(count));
        }
        if chunks != u64::from(geometry.queue_depth()) {
            return Err(InfoError::Coverage);
        }
        // INVARIANT: All of it was just checked.
        Ok(Self {
            descriptors,
            chunk_size: geometry.chunk_size(),
        })
    }

    /// Goes through the chunks in the order of their ids.
    pub fn iter(self) -> impl Iterator<Item = RemoteChunk> + 'a {
        let size = self.chunk_size;
        self.descriptors.iter().flat_map(move |d| {
            let (addr, rkey) = (d.addr.get(), d.key.get());
            let count = d.len.get().checked_div(size).unwrap_or(0);
            (0..count).map(move |i| RemoteChunk {
                addr: addr.wrapping_add(u64::from(i).wrapping_mul(u64::from(size))),
                rkey,
            })
        })
    }
}

/// Writes an info response into a server's send buffer; returns its length, or `None` if there are
/// more than 65535 descriptors or the buffer is too small.
pub fn encode(
    buf: &mut [u8],
    descriptors: impl ExactSizeIterator<Item = Descriptor>,
) -> Option<usize> {
    let sg_cnt = u16::try_from(descriptors.len()).ok()?;
    let (head, rest) = InfoResponse::mut_from_prefix(buf).ok()?;
    let (out, _) = <[Descriptor]>::mut_from_prefix_with_elems(rest, sg_cnt.into()).ok()?;
    *head = InfoResponse::new(sg_cnt);
    for (to, from) in out.iter_mut().zip(descriptors) {
        *to = from;
    }
    Some(response_len(sg_cnt))
}
