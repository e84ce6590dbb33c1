// SPDX-License-Identifier: GPL-2.0

//! The layouts of the messages. All integers are little-endian.
//!
//! A request is the user message of an RTRS request: a head, and for some kinds a body. What a
//! client writes is the data of the same request. Of a request for data the first bytes of the
//! answer are an answer's head, and the bytes of the object follow; of any other request the error
//! number of RTRS is all.

use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::span::{
    ObjectId,
    IO_BLOCKS_MAX, //
};

/// The version of the protocol, in each message. In 1 the answer of an attach had no identity, in 2
/// a request had no incarnation.
pub const VERSION: u8 = 3;

/// Kind of a request: use a store.
pub const ATTACH: u8 = 1;
/// Kind of a request: answer.
pub const PING: u8 = 2;
/// Kind of a request: make an object.
pub const CREATE: u8 = 3;
/// Kind of a request: remove an object.
pub const DELETE: u8 = 4;
/// Kind of a request: tell the size of an object.
pub const STAT: u8 = 5;
/// Kind of a request: name some objects.
pub const LIST: u8 = 6;
/// Kind of a request: read bytes.
pub const READ: u8 = 7;
/// Kind of a request: write bytes.
pub const WRITE: u8 = 8;
/// Kind of a request: set the size of an object.
pub const TRUNCATE: u8 = 9;
/// Kind of a request: copy bytes by reference.
pub const COPY: u8 = 10;
/// Kind of a request: copy an object by reference.
pub const SNAPSHOT: u8 = 11;
/// Kind of a request: write bytes back.
pub const FLUSH: u8 = 12;
/// Kind of a request: take a lease.
pub const LEASE: u8 = 13;
/// Kind of a request: end a lease.
pub const RELEASE: u8 = 14;

/// Flag of a write and a copy: an object that is not there is made.
pub const FLAG_CREATE: u16 = 1 << 0;
/// Flag of a request that makes an object: one that is there is an error.
pub const FLAG_NEW: u16 = 1 << 1;
/// Flag of a lease: for writing.
pub const FLAG_WRITER: u16 = 1 << 2;

/// The most bytes of the name of a store.
pub const STORE_NAME_MAX: usize = 32;
/// The bytes of an answer without bytes of an object.
pub const ANSWER_BYTES: u32 = 64;
/// The bytes before those of the object in the answer of a read.
pub const READ_ANSWER_BYTES: u32 = 160;
/// The CRCs in the answer of a read.
pub const READ_SUMS: usize = 32;
/// The bytes of a name in the answer of a list.
pub const LISTED_BYTES: u32 = 16;

/// The name of an object.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Id {
    /// The upper half.
    pub high: U64,
    /// The lower half.
    pub low: U64,
}
const _: () = assert!(size_of::<Id>() == LISTED_BYTES as usize);

impl From<ObjectId> for Id {
    fn from(id: ObjectId) -> Self {
        Self {
            high: U64::new(id.high),
            low: U64::new(id.low),
        }
    }
}

impl From<Id> for ObjectId {
    fn from(id: Id) -> Self {
        Self {
            high: id.high.get(),
            low: id.low.get(),
        }
    }
}

/// The head of a request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// The kind.
    pub kind: u8,
    /// [`VERSION`].
    pub version: u8,
    /// Flags of the kind.
    pub flags: U16,
    /// The lease under which it is sent; 0 without one.
    pub lease: U32,
    /// The word of a [`Ticket`](super::ticket::Ticket), of operations that change something; 0 of
    /// others.
    pub ticket: U64,
    /// The incarnation of the client, as the answer of its attach has told it; 0 of an attach. What
    /// is sent to another one is not carried out.
    pub incarnation: U64,
    /// The object.
    pub object: Id,
    /// The first byte, the new size, or the cursor of a list.
    pub offset: U64,
    /// The number of bytes; 0 of a flush or a lease for all.
    pub length: U64,
}
const _: () = assert!(size_of::<Head>() == 56);

/// The body of a copy and a snapshot.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Destination {
    /// The object that is written.
    pub object: Id,
    /// The first byte; 0 of a snapshot.
    pub offset: U64,
}
const _: () = assert!(size_of::<Destination>() == 24);

/// The bytes of the longest request: a write of [`IO_BLOCKS_MAX`] blocks.
pub const REQUEST_BYTES_MAX: usize = size_of::<Head>() + IO_BLOCKS_MAX * size_of::<U32>();

/// The answer of an attach.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AttachAnswer {
    /// [`ATTACH`].
    pub kind: u8,
    /// [`VERSION`].
    pub version: u8,
    /// The meaning of an acknowledgement: 0 in memory, 1 durable.
    pub is_durable: u8,
    /// Whether a flush writes back: 1 with a backing, else 0.
    pub has_backing: u8,
    /// The most bytes of a read and a write.
    pub io_bytes_max: U32,
    /// A number of this life of the store: another one in each.
    pub boot: U64,
    /// The number of the client, in the server's files.
    pub client: U32,
    /// 0.
    pub reserved: U32,
    /// The number of what the server knows of the client's operations: see
    /// [`Attached`](super::answer::Attached).
    pub incarnation: U64,
    /// The identity of what is kept: that of a log, or a number of this life of a store in memory.
    pub identity: U64,
    /// 0.
    pub reserved2: [u8; 24],
}
const _: () = assert!(size_of::<AttachAnswer>() == ANSWER_BYTES as usize);

/// The answer of a stat, a ping, and a lease.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ShortAnswer {
    /// The kind of the request.
    pub kind: u8,
    /// [`VERSION`].
    pub version: u8,
    /// 0.
    pub reserved: U16,
    /// The lease; 0 of others.
    pub lease: U32,
    /// The size of the object in bytes.
    pub size: U64,
    /// The blocks that are stored: those that are no holes.
    pub blocks: U64,
    /// 0.
    pub reserved2: [u8; 40],
}
const _: () = assert!(size_of::<ShortAnswer>() == ANSWER_BYTES as usize);

/// The head of the answer of a list; names follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ListAnswer {
    /// [`LIST`].
    pub kind: u8,
    /// [`VERSION`].
    pub version: u8,
    /// 0.
    pub reserved: U16,
    /// The names that follow.
    pub count: U32,
    /// The cursor for the next names; 0 behind the last one.
    pub next: U64,
    /// 0.
    pub reserved2: [u8; 48],
}
const _: () = assert!(size_of::<ListAnswer>() == ANSWER_BYTES as usize);

/// The head of the answer of a read; the bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReadAnswer {
    /// [`READ`].
    pub kind: u8,
    /// [`VERSION`].
    pub version: u8,
    /// The number of CRCs: one for each block of which there are bytes.
    pub sums_count: U16,
    /// The bytes that were read: fewer than asked for at the end of the object only.
    pub bytes: U32,
    /// The size of the object in bytes.
    pub size: U64,
    /// 0.
    pub reserved: [u8; 16],
    /// The CRC-32C of the bytes of each block; 0 behind the last one.
    pub sums: [U32; READ_SUMS],
}
const _: () = assert!(size_of::<ReadAnswer>() == READ_ANSWER_BYTES as usize);
const _: () = assert!(IO_BLOCKS_MAX <= READ_SUMS);
