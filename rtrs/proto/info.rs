// SPDX-License-Identifier: GPL-2.0

//! The info exchange of a path: the client sends the name of its session, the server the addresses
//! of its chunks.

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
use ferro_proto::{errno::Errno, text::Escaped};

/// The reason why a session name is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The message is not 272 bytes.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// No NUL within the field of 255 bytes, or more than 254 characters (D10).
    TooLong,
    /// The name is empty.
    Empty,
    /// `/` or a control character, which a directory of sysfs or a log line must not have, or a `.`
    /// at the beginning or after another one, which a path must not have.
    Forbidden(u8),
}

impl NameError {
    /// Returns the error with which the server rejects the session.
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
                write!(
                    f,
                    "session name has a '{}' ({c:#04x}) in it",
                    Escaped(&[*c])
                )
            }
        }
    }
}

/// Checks a session name: 1 to 254 bytes, neither `/` nor control characters, and each `.` after
/// another character, as in host names and addresses. (The C driver takes no `.` at all.)
pub fn check_name(name: &[u8]) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > super::SESSION_NAME_MAX {
        return Err(NameError::TooLong);
    }
    let mut last = b'.';
    for c in name {
        if *c == b'/' || c.is_ascii_control() || (*c == b'.' && last == b'.') {
            return Err(NameError::Forbidden(*c));
        }
        last = *c;
    }
    Ok(())
}

impl InfoRequest {
    /// Creates the info request of a session.
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

    /// Parses the received bytes, without a copy.
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

/// Returns the size of an info response with `sg_cnt` descriptors; a client's receive buffer has
/// this size for its queue depth.
pub const fn response_len(sg_cnt: u16) -> usize {
    size_of::<InfoResponse>() + sg_cnt as usize * size_of::<Descriptor>()
}

/// The remote address of a chunk of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteChunk {
    /// The remote address of its first byte.
    pub addr: u64,
    /// The remote key; with `always_invalidate=Y` valid for one request.
    pub rkey: u32,
}

/// The reason why a client rejects an info response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoError {
    /// The response is shorter than its header or its descriptors.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// The server rejects the session with this error.
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

/// The server's chunks, checked: the session's number of chunks, each of the session's size.
///
/// With `always_invalidate=Y` a descriptor is one chunk, with `=N` a range of chunks.
///
/// # Invariants
///
/// Each descriptor's length is a non-zero multiple of the chunk size, no descriptor wraps around,
/// and together they cover exactly `queue_depth` chunks.
#[derive(Clone, Copy)]
pub struct Chunks<'a> {
    descriptors: &'a [Descriptor],
    chunk_size: u32,
}

impl<'a> Chunks<'a> {
    /// Parses and checks the response received on the admin connection.
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
        // INVARIANT: The descriptors were checked above.
        Ok(Self {
            descriptors,
            chunk_size: geometry.chunk_size(),
        })
    }

    /// Iterates over the chunks in the order of their ids.
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

/// Encodes an info response into a server's send buffer; returns its length, or `None` if there are
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
