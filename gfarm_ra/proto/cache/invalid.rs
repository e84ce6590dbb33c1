// SPDX-License-Identifier: GPL-2.0

//! The faults of a message whose sender has the key.

use core::fmt;

/// A field that has a value which no node sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invalid {
    /// The body has another length than its kind.
    Length,
    /// The number of the object is 0.
    Object,
    /// The nanoseconds of the last write are a second or more.
    Time,
    /// The size of the file is 0, or more than a file can have.
    Size,
    /// The set of pages is empty, or has some behind the end of the file.
    Pages,
    /// The length of fragments is none, or there are too many of them.
    Fragments,
    /// The number of a queue pair is one of the subnet's management, or has more than 24 bits.
    QueuePair,
    /// The key of a queue pair is 0, or has its highest bit set.
    QueueKey,
    /// An owner is told where to send fragments, or a holder is not.
    Landing,
    /// The role in which the receiver is asked is not known.
    Role,
    /// A flag is not known.
    Flags,
    /// The time is 0, or longer than [`TIMEOUT_MS_MAX`](super::request::TIMEOUT_MS_MAX).
    Timeout,
    /// A node is excluded twice, without a reason, or behind the end of the list.
    Excluded,
    /// The status of a reply is not known.
    Status,
    /// A field has a value although the status has no such field, or has none.
    Field,
    /// Pages are told to be at a node and to be fetched as well.
    Sets,
    /// A node is named without its number or address.
    Holder,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "length",
            Self::Object => "object",
            Self::Time => "time of the last write",
            Self::Size => "size of the file",
            Self::Pages => "pages",
            Self::Fragments => "fragments",
            Self::QueuePair => "queue pair",
            Self::QueueKey => "key of the queue pair",
            Self::Landing => "place for fragments",
            Self::Role => "role",
            Self::Flags => "flags",
            Self::Timeout => "time limit",
            Self::Excluded => "excluded nodes",
            Self::Status => "status",
            Self::Field => "field that the status does not have, or lacks",
            Self::Sets => "sets of pages",
            Self::Holder => "holder",
        })?;
        f.write_str(" invalid")
    }
}
