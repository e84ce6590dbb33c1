// SPDX-License-Identifier: GPL-2.0

//! The requests of a client: the checked user message of an RTRS request.
//!
//! The server answers a rejected message with an error, and the session continues.

mod encode;
mod malformed;
mod parse;

use zerocopy::little_endian::U32;

use super::{
    span::{
        ObjectId,
        Span, //
    },
    ticket::Ticket,
    wire, //
};

pub use self::malformed::Malformed;

/// The direction of an RTRS request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data go from the server to the client.
    Read,
    /// Data go from the client to the server.
    Write,
}

/// The CRC-32C of the bytes of each block of a write, as the client has made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums<'a>(&'a [U32]);

impl<'a> Sums<'a> {
    /// Takes them as they are on the wire.
    pub const fn new(sums: &'a [U32]) -> Self {
        Self(sums)
    }

    /// Goes through them, in the order of the blocks.
    pub fn iter(self) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().map(|sum| sum.get())
    }
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The lease under which it is sent; 0 without one.
    pub lease: u32,
    /// The number of the operation; of one that changes nothing there is none.
    pub ticket: Option<Ticket>,
    /// The incarnation of the client in which it is carried out; 0 of an attach.
    pub incarnation: u64,
    /// The operation.
    pub operation: Operation<'a>,
}

/// An operation, whose numbers go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Use a store; answered with [`wire::AttachAnswer`].
    Attach {
        /// Its name: 1 to [`wire::STORE_NAME_MAX`] bytes without a NUL.
        store: &'a [u8],
    },
    /// Answer, with [`wire::ShortAnswer`].
    Ping,
    /// Make an object.
    Create {
        /// Its name.
        object: ObjectId,
        /// One that is there is an error.
        is_new: bool,
    },
    /// Remove an object.
    Delete {
        /// Its name.
        object: ObjectId,
    },
    /// Tell the size of an object; answered with [`wire::ShortAnswer`].
    Stat {
        /// Its name.
        object: ObjectId,
    },
    /// Name some objects; answered with [`wire::ListAnswer`].
    List {
        /// The cursor that the answer before has given; 0 to begin.
        cursor: u32,
        /// The names for which there is room.
        count_max: u32,
    },
    /// Read bytes; answered with [`wire::ReadAnswer`].
    Read {
        /// The object.
        object: ObjectId,
        /// The bytes, of one operation.
        span: Span,
    },
    /// Write bytes, which are the request's data.
    Write {
        /// The object.
        object: ObjectId,
        /// The bytes, of one operation.
        span: Span,
        /// An object that is not there is made.
        creates: bool,
        /// One for each block.
        sums: Sums<'a>,
    },
    /// Set the size of an object.
    Truncate {
        /// The object.
        object: ObjectId,
        /// The size in bytes.
        size: u64,
    },
    /// Copy bytes by reference.
    Copy {
        /// The object that is read.
        source: ObjectId,
        /// Its bytes.
        span: Span,
        /// The object that is written.
        destination: ObjectId,
        /// The first byte that is written; with the length it is possible.
        offset: u64,
        /// An object that is not there is made.
        creates: bool,
    },
    /// Copy an object by reference.
    Snapshot {
        /// The object that is read.
        source: ObjectId,
        /// The object that is made, or replaced.
        destination: ObjectId,
        /// One that is there is an error.
        is_new: bool,
    },
    /// Write bytes back: durable when it is answered.
    Flush {
        /// The object.
        object: ObjectId,
        /// The bytes.
        span: Span,
    },
    /// Take a lease; answered with [`wire::ShortAnswer`].
    Lease {
        /// The object, which need not be there.
        object: ObjectId,
        /// The bytes.
        span: Span,
        /// Whether it is for writing.
        is_writer: bool,
    },
    /// End the lease of the message.
    Release,
}

impl Operation<'_> {
    /// Returns the bytes of the request's data: of what is written, or of the answer.
    pub fn data_bytes(&self) -> u32 {
        // CAST: The bytes of one operation.
        let io = |span: &Span| span.bytes() as u32;
        match self {
            Self::Read { span, .. } => wire::READ_ANSWER_BYTES.saturating_add(io(span)),
            Self::Write { span, .. } => io(span),
            Self::List { count_max, .. } => {
                let names = count_max.saturating_mul(wire::LISTED_BYTES);
                wire::ANSWER_BYTES.saturating_add(names)
            }
            Self::Attach { .. } | Self::Ping | Self::Stat { .. } | Self::Lease { .. } => {
                wire::ANSWER_BYTES
            }
            _ => 0,
        }
    }
}
