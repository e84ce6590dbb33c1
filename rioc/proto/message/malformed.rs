// SPDX-License-Identifier: GPL-2.0

//! The reasons why a message is rejected, with the errors that its client gets.

use core::fmt;

use ferro_proto::errno::Errno;

use super::super::wire::VERSION;

/// The reason why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message does not have the bytes of its kind.
    Length(usize),
    /// The version is another one.
    Version(u8),
    /// The kind is not known.
    Kind(u8),
    /// The flags are not those of the kind.
    Flags(u16),
    /// The direction of the request is not that of the kind.
    Direction,
    /// The bytes of the request's data are not those of the operation.
    DataLength(u32),
    /// A lease is named and cannot be, or is missing.
    Lease(u32),
    /// A number of an operation is named and cannot be, or is missing.
    Ticket(u64),
    /// An object is named where there is none.
    Object,
    /// Another number is set where there is none.
    Unused,
    /// No object can have these bytes.
    Span {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    },
    /// One operation has no room for so many bytes.
    TooLong(u64),
    /// An object cannot have this size.
    Size(u64),
    /// The cursor of a list is none.
    Cursor(u64),
    /// The name of a store is empty, or has bytes behind its end.
    StoreName,
}

impl Malformed {
    /// Returns the error that the client gets.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Version(_) => Errno::EPROTONOSUPPORT,
            Self::Kind(_) => Errno::EOPNOTSUPP,
            Self::TooLong(_) => Errno::EMSGSIZE,
            Self::Span { .. } | Self::Size(_) => Errno::EFBIG,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "message of {bytes} bytes"),
            Self::Version(version) => write!(
                f,
                "version {version} of the protocol, not {VERSION}: load rioc_client and \
                 rioc_server of one release"
            ),
            Self::Kind(kind) => write!(f, "message of kind {kind}"),
            Self::Flags(flags) => write!(f, "flags {flags:#x}"),
            Self::Direction => f.write_str("wrong direction of the data"),
            Self::DataLength(bytes) => write!(f, "{bytes} bytes of data"),
            Self::Lease(lease) => write!(f, "lease {lease}"),
            Self::Ticket(ticket) => write!(f, "number {ticket} of an operation"),
            Self::Object => f.write_str("an object is named"),
            Self::Unused => f.write_str("a number is set that its kind does not have"),
            Self::Span { offset, length } => write!(f, "{length} bytes at {offset}"),
            Self::TooLong(length) => write!(f, "{length} bytes in one operation"),
            Self::Size(size) => write!(f, "size of {size} bytes"),
            Self::Cursor(cursor) => write!(f, "cursor {cursor}"),
            Self::StoreName => f.write_str("the store's name is empty or has a NUL"),
        }
    }
}
