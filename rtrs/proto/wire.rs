// SPDX-License-Identifier: GPL-2.0

//! The messages, byte for byte. All integers are little-endian.
//!
//! Every constructor sets every byte, so nothing of our memory goes on the wire (D15).
//!
//! Layouts: `drivers/infiniband/ulp/rtrs/rtrs-pri.h`.

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

use super::{
    geometry::Geometry,
    HDR_SIZE_MAX,
    MAGIC,
    VERSION, //
};
use ferro_proto::errno::Errno;

/// Message type of [`InfoRequest`].
pub const INFO_REQUEST: u16 = 0;
/// Message type of [`InfoResponse`].
pub const INFO_RESPONSE: u16 = 1;
/// Message type of [`WriteHead`].
pub const WRITE: u16 = 2;
/// Message type of [`ReadHead`].
pub const READ: u16 = 3;
/// Message type of [`RkeyResponse`].
pub const RKEY_RESPONSE: u16 = 4;

/// Flag of [`ReadHead`]: the client wants its key invalidated by the server.
pub const NEED_INVAL: u16 = 1 << 0;
/// Flag of [`ConnectResponse`]: each response brings a new key (`always_invalidate=Y`).
pub const NEW_RKEY: u32 = 1 << 1;
/// Bit of [`ConnectRequest::first_conn`].
pub const FIRST_CONN: u8 = 1 << 0;

/// One remote buffer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Descriptor {
    /// Remote address.
    pub addr: U64,
    /// Remote key.
    pub key: U32,
    /// Length in bytes.
    pub len: U32,
}

impl Descriptor {
    /// Describes `len` bytes at `addr`, to be used with `key`.
    #[inline]
    pub const fn new(addr: u64, key: u32, len: u32) -> Self {
        Self {
            addr: U64::new(addr),
            key: U32::new(key),
            len: U32::new(len),
        }
    }
}

/// `con_req`: private data of a connect request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectRequest {
    /// Left to rdma_cm, which writes its own version here for `AF_IB`; 0.
    pub cma_version: u8,
    /// Left to rdma_cm likewise; 0.
    pub ip_version: u8,
    /// [`MAGIC`].
    pub magic: U16,
    /// [`VERSION`].
    pub version: U16,
    /// Number of this connection in its path, from 0.
    pub cid: U16,
    /// Connections of the path.
    pub cid_num: U16,
    /// How often this path has connected; 1 on the very first time.
    pub recon_cnt: U16,
    /// Names the path.
    pub sess_uuid: [u8; 16],
    /// Names the session, that is the group of paths.
    pub paths_uuid: [u8; 16],
    /// [`FIRST_CONN`] or 0.
    pub first_conn: u8,
    /// 0.
    pub reserved: [u8; 11],
}

/// `con_rsp`: private data of an accept and of a reject.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectResponse {
    /// [`MAGIC`].
    pub magic: U16,
    /// [`VERSION`].
    pub version: U16,
    /// 0, or the negative error number of a reject.
    pub errno: U16,
    /// Chunks of the session.
    pub queue_depth: U16,
    /// Most data bytes of one request.
    pub max_io_size: U32,
    /// Most bytes of user message and head of one request.
    pub max_hdr_size: U32,
    /// [`NEW_RKEY`] or 0.
    pub flags: U32,
    /// 0.
    pub reserved: [u8; 36],
}

impl ConnectResponse {
    /// Accepts a connection to chunks of this geometry.
    pub const fn accept(geometry: &Geometry, new_rkey: bool) -> Self {
        Self {
            magic: U16::new(MAGIC),
            version: U16::new(VERSION),
            errno: U16::new(0),
            queue_depth: U16::new(geometry.queue_depth()),
            max_io_size: U32::new(geometry.chunk_size().saturating_sub(HDR_SIZE_MAX)),
            max_hdr_size: U32::new(HDR_SIZE_MAX),
            flags: U32::new(if new_rkey { NEW_RKEY } else { 0 }),
            reserved: [0; 36],
        }
    }

    /// Rejects a connection.
    pub const fn reject(errno: Errno) -> Self {
        Self {
            magic: U16::new(MAGIC),
            version: U16::new(VERSION),
            errno: U16::new(errno.get().wrapping_neg()),
            queue_depth: U16::new(0),
            max_io_size: U32::new(0),
            max_hdr_size: U32::new(0),
            flags: U32::new(0),
            reserved: [0; 36],
        }
    }
}

/// `info_req`: the first message of an established path, sent on the admin connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InfoRequest {
    /// [`INFO_REQUEST`].
    pub kind: U16,
    /// Session name, NUL-terminated and NUL-padded.
    pub pathname: [u8; 255],
    /// 0.
    pub reserved: [u8; 15],
}

/// `info_rsp` without its descriptors, which follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InfoResponse {
    /// [`INFO_RESPONSE`].
    pub kind: U16,
    /// Number of [`Descriptor`]s that follow.
    pub sg_cnt: U16,
    /// 0; without descriptors the errno for which the server refuses the session, negative.
    /// (Protocol 2.0 reserves it, and its client refuses a response without descriptors.)
    pub refusal: U32,
}

impl InfoResponse {
    /// Announces `sg_cnt` descriptors.
    pub const fn new(sg_cnt: u16) -> Self {
        Self {
            kind: U16::new(INFO_RESPONSE),
            sg_cnt: U16::new(sg_cnt),
            refusal: U32::new(0),
        }
    }

    /// Refuses the session.
    pub const fn refuse(errno: Errno) -> Self {
        Self {
            kind: U16::new(INFO_RESPONSE),
            sg_cnt: U16::new(0),
            // CAST: The field is a signed number.
            refusal: U32::new(errno.to_raw() as u32),
        }
    }
}

/// Head of a write request, behind data and user message in the chunk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct WriteHead {
    /// [`WRITE`].
    pub kind: U16,
    /// Bytes of user message right before this head.
    pub usr_len: U16,
}

impl WriteHead {
    /// Makes the head of a write request.
    #[inline]
    pub const fn new(usr_len: u16) -> Self {
        Self {
            kind: U16::new(WRITE),
            usr_len: U16::new(usr_len),
        }
    }
}

/// Head of a read request, behind the hole for the data and the user message.
///
/// `sg_cnt` [`Descriptor`]s follow, none or one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReadHead {
    /// [`READ`].
    pub kind: U16,
    /// Bytes of user message right before this head.
    pub usr_len: U16,
    /// [`NEED_INVAL`] or 0.
    pub flags: U16,
    /// Descriptors that follow.
    pub sg_cnt: U16,
}

/// Head of a read request together with its one descriptor: what a client sends.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReadMessage {
    /// The head.
    pub head: ReadHead,
    /// Where the answer goes.
    pub reply: Descriptor,
}

impl ReadHead {
    /// Makes the head of a read request that wants no data back; no descriptor follows.
    #[inline]
    pub const fn without_reply(usr_len: u16) -> Self {
        Self {
            kind: U16::new(READ),
            usr_len: U16::new(usr_len),
            flags: U16::new(0),
            sg_cnt: U16::new(0),
        }
    }
}

impl ReadMessage {
    /// Makes a read request whose answer goes to `reply`, whose key the server is to invalidate.
    #[inline]
    pub const fn new(usr_len: u16, reply: Descriptor) -> Self {
        Self {
            head: ReadHead {
                kind: U16::new(READ),
                usr_len: U16::new(usr_len),
                flags: U16::new(NEED_INVAL),
                sg_cnt: U16::new(1),
            },
            reply,
        }
    }
}

/// `rkey_rsp`: payload of a response under `always_invalidate=Y`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RkeyResponse {
    /// [`RKEY_RESPONSE`].
    pub kind: U16,
    /// The chunk that the key is for.
    pub buf_id: U16,
    /// Its new key.
    pub rkey: U32,
}

impl RkeyResponse {
    /// Tells the client the new key of one chunk.
    #[inline]
    pub const fn new(buf_id: u16, rkey: u32) -> Self {
        Self {
            kind: U16::new(RKEY_RESPONSE),
            buf_id: U16::new(buf_id),
            rkey: U32::new(rkey),
        }
    }
}

const _: () = assert!(size_of::<Descriptor>() == 16);
const _: () = assert!(size_of::<ConnectRequest>() == 56);
const _: () = assert!(size_of::<ConnectResponse>() == 56);
const _: () = assert!(size_of::<InfoRequest>() == 272);
const _: () = assert!(size_of::<InfoResponse>() == 8);
const _: () = assert!(size_of::<WriteHead>() == 4);
const _: () = assert!(size_of::<ReadHead>() == 8);
const _: () = assert!(size_of::<ReadMessage>() == 24);
const _: () = assert!(size_of::<RkeyResponse>() == 8);
