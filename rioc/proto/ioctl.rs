// SPDX-License-Identifier: GPL-2.0

//! The requests of a program to `/dev/rioc`: one structure of a fixed size, whose fields are those
//! of the messages, in the machine's order of bytes.
//!
//! Fields that a kind does not use are 0, but those that the kernel writes: a program may use a
//! structure again.

use core::fmt;

use ferro_proto::errno::Errno;
use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

use super::{
    message::{
        Malformed,
        Operation, //
    },
    span::{
        ObjectId,
        Span, //
    },
    wire, //
};

/// The version of the structure.
pub const VERSION: u32 = 1;
/// The type and the number of the ioctl, as `_IOWR` takes them with [`Request`].
pub const TYPE: u8 = 0xb9;
/// See [`TYPE`].
pub const NUMBER: u8 = 1;
/// Bit of [`Request::state`]: what is acknowledged is durable.
pub const DURABLE: u32 = 1 << 0;
/// Bit of [`Request::state`]: a flush writes back.
pub const BACKING: u32 = 1 << 1;

/// The structure.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// A kind of [`wire`].
    pub kind: u32,
    /// Flags of the kind.
    pub flags: u32,
    /// The lease under which it is done; of a lease the kernel writes its number.
    pub lease: u32,
    /// The object: upper and lower half.
    pub object: [u64; 2],
    /// The first byte, the new size, or the cursor of a list, of which the kernel writes the next
    /// one: 0 behind the last name.
    pub offset: u64,
    /// The number of bytes; 0 of a flush or a lease for all. The kernel writes how many were read,
    /// written, copied, or are names: also of an operation that has failed, from its first byte on.
    pub length: u64,
    /// The address of the program's bytes: of a read, a write and a list, and of an attach, which
    /// has the name of a session there.
    pub buffer: u64,
    /// The object that a copy and a snapshot write.
    pub destination: [u64; 2],
    /// The first byte that a copy writes.
    pub destination_offset: u64,
    /// The kernel writes the size of the object, of a read and a stat.
    pub size: u64,
    /// The kernel writes the blocks that are stored, of a stat.
    pub blocks: u64,
    /// The kernel writes the number of this life of the store, of an attach.
    pub boot: u64,
    /// The kernel writes [`DURABLE`] and [`BACKING`], of an attach.
    pub state: u32,
    /// The kernel writes the most bytes that are read or written at once, of an attach.
    pub io_bytes_max: u32,
    /// 0.
    pub reserved: [u64; 2],
}
const _: () = assert!(size_of::<Request>() == 128);

/// A request that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Use a session, whose name has so many bytes.
    Attach(u64),
    /// One operation without bytes of the program.
    One(Operation<'static>),
    /// Name objects, from a cursor on, for which there are so many bytes.
    List(u32, u64),
    /// Read bytes.
    Read(ObjectId, Span),
    /// Write bytes; an object that is not there is made, or not.
    Write(ObjectId, Span, bool),
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
}

/// The reason why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The version is another one.
    Version(u32),
    /// A byte that must be 0 is not.
    Reserved,
    /// A field is wrong.
    Field(Malformed),
}

impl Refused {
    /// Returns the error that the program gets.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Version(_) => Errno::EPROTONOSUPPORT,
            Self::Reserved => Errno::EINVAL,
            Self::Field(malformed) => malformed.errno(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version}, not {VERSION}"),
            Self::Reserved => f.write_str("a reserved field is set"),
            Self::Field(malformed) => malformed.fmt(f),
        }
    }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Field(malformed)
    }
}

const fn id([high, low]: [u64; 2]) -> ObjectId {
    ObjectId { high, low }
}

impl Request {
    /// Checks all that the program has written.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn call(&self) -> Result<Call, Refused> {
        if self.version != VERSION {
            return Err(Refused::Version(self.version));
        }
        if self.reserved != [0; 2] {
            return Err(Refused::Reserved);
        }
        let kind = u8::try_from(self.kind).map_err(|_| Malformed::Kind(u8::MAX))?;
        let flags = u16::try_from(self.flags).map_err(|_| Malformed::Flags(u16::MAX))?;
        let has_buffer = matches!(kind, wire::ATTACH | wire::LIST | wire::READ | wire::WRITE);
        if !has_buffer && self.buffer != 0 {
            return Err(Refused::Reserved);
        }
        let is_copy = matches!(kind, wire::COPY | wire::SNAPSHOT);
        let is_moved = kind == wire::COPY || self.destination_offset == 0;
        if (!is_copy && self.destination != [0; 2]) || !is_moved {
            return Err(Malformed::Unused.into());
        }
        // The length of the buffer is none of the message.
        let is_length = !matches!(kind, wire::ATTACH | wire::LIST);
        let head = wire::Head {
            kind,
            version: wire::VERSION,
            flags: U16::new(flags),
            // The kernel writes it where it is the answer.
            lease: U32::new(if kind == wire::LEASE { 0 } else { self.lease }),
            ticket: U64::ZERO,
            incarnation: U64::ZERO,
            object: id(self.object).into(),
            offset: U64::new(self.offset),
            length: U64::new(if is_length { self.length } else { 0 }),
        };
        head.check_fields()?;
        self.of_kind(&head)
    }

    fn of_kind(&self, head: &wire::Head) -> Result<Call, Refused> {
        let (object, destination) = (id(self.object), id(self.destination));
        let (offset, length) = (self.offset, self.length);
        let span = Span::new(offset, length).ok_or(Malformed::Span { offset, length });
        let creates = head.flags.get() & wire::FLAG_CREATE != 0;
        Ok(match head.kind {
            wire::ATTACH => Call::Attach(length),
            wire::LIST => {
                let cursor = u32::try_from(offset).map_err(|_| Malformed::Cursor(offset))?;
                Call::List(cursor, length)
            }
            wire::READ => Call::Read(object, span?),
            wire::WRITE => Call::Write(object, span?, creates),
            wire::COPY => {
                let (span, offset) = (span?, self.destination_offset);
                span.moved_to(offset)
                    .ok_or(Malformed::Span { offset, length })?;
                Call::Copy {
                    source: object,
                    span,
                    destination,
                    offset,
                    creates,
                }
            }
            wire::SNAPSHOT => Call::One(Operation::Snapshot {
                source: object,
                destination,
                is_new: head.flags.get() & wire::FLAG_NEW != 0,
            }),
            _ => Call::One(Operation::without_body(head)?),
        })
    }
}
