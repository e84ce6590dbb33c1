// SPDX-License-Identifier: GPL-2.0

//! Responses: 9 bytes, as in the example.

use core::fmt;

use zerocopy::{
    little_endian::U64,
    transmute, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::Violation;

/// The bytes of a response.
pub const LEN: usize = 9;

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    id: U64,
    status: u8,
}

const _: () = assert!(size_of::<Wire>() == LEN);

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The request was done. What was written is on the medium.
    Done,
    /// The checksum of the user data is not that of its bytes. Nothing was written.
    Payload,
    /// The target has not all of these chunks. Nothing was written.
    Range,
    /// A chunk on the medium is bad, or was never written.
    Chunk,
    /// A chunk on the medium is that of another place.
    Place,
    /// The medium failed.
    Io,
}

impl Status {
    /// All, in the order of their numbers.
    const ALL: [Self; 6] = [
        Self::Done,
        Self::Payload,
        Self::Range,
        Self::Chunk,
        Self::Place,
        Self::Io,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Payload => "the data that arrived has another checksum",
            Self::Range => "the target has not all of these chunks",
            Self::Chunk => "a chunk on the target's medium is bad",
            Self::Place => "a chunk on the target's medium is that of another place",
            Self::Io => "the target's medium failed",
        })
    }
}

/// Returns the bytes of the response to request `id`.
pub fn encode(id: u64, status: Status) -> [u8; LEN] {
    transmute!(Wire {
        id: id.into(),
        // CAST: there are few.
        status: status as u8,
    })
}

/// Parses a message of `len_bytes` that must be the response to request `id`.
///
/// # Errors
///
/// Returns [`Violation::Length`], [`Violation::Id`] or [`Violation::Status`].
pub fn parse(len_bytes: u32, bytes: &[u8; LEN], id: u64) -> Result<Status, Violation> {
    if len_bytes != LEN as u32 {
        return Err(Violation::Length {
            found: len_bytes,
            expected: LEN as u32,
        });
    }
    let wire: Wire = transmute!(*bytes);
    if wire.id.get() != id {
        return Err(Violation::Id {
            found: wire.id.get(),
            expected: id,
        });
    }
    Status::of(wire.status).ok_or(Violation::Status(wire.status))
}
