// SPDX-License-Identifier: GPL-2.0

//! Violations: messages that no peer may send. One ends the connection.

use core::fmt;

/// The reason why a message is not one of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message has fewer or more bytes than its header says.
    Length {
        /// Its bytes.
        found: u32,
        /// The number that there must be, or the least if no header was read.
        expected: u32,
    },
    /// The checksum of all but the payload is not that of its bytes.
    HeaderCrc {
        /// The checksum in the message.
        stored: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// A request has a type that does not exist.
    Type(u8),
    /// A request is about no data.
    Empty,
    /// A request with its data inlined names memory as well.
    InlineMemory,
    /// A request to read has a checksum of data.
    ReadSignature(u32),
    /// The memory that a request names goes beyond the last address.
    Wraps(u64),
    /// A response has a status that does not exist.
    Status(u8),
    /// A response is not that of the request in flight.
    Id {
        /// The number in the response.
        found: u64,
        /// The number in the request.
        expected: u64,
    },
    /// The data that come with a connection do not begin with the protocol's name.
    Magic(u32),
    /// The peer speaks another version.
    Version(u16),
    /// The target has no chunks, or no receives.
    Nothing,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found, expected } => {
                write!(f, "a message of {found} bytes where {expected} belong")
            }
            Self::HeaderCrc { stored, computed } => write!(
                f,
                "the checksum of a header is {stored:#010x}, that of its bytes {computed:#010x}"
            ),
            Self::Type(kind) => write!(f, "a request of type {kind:#04x}, which does not exist"),
            Self::Empty => f.write_str("a request about no data"),
            Self::InlineMemory => f.write_str("a request with inlined data that names memory"),
            Self::ReadSignature(crc) => write!(f, "a request to read with a checksum {crc:#010x}"),
            Self::Wraps(address) => {
                write!(f, "memory at {address:#x} goes beyond the last address")
            }
            Self::Status(status) => {
                write!(f, "a response with status {status}, which does not exist")
            }
            Self::Id { found, expected } => {
                write!(
                    f,
                    "a response to request {found} where {expected} is in flight"
                )
            }
            Self::Magic(magic) => write!(f, "a peer of another protocol ({magic:#010x})"),
            Self::Version(version) => write!(f, "a peer of version {version}"),
            Self::Nothing => f.write_str("a target that has no chunks or no receives"),
        }
    }
}
