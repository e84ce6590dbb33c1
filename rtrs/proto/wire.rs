// SPDX-License-Identifier: GPL-2.0

//! The layouts of the messages. All integers are little-endian.
//!
//! Every constructor sets every byte, so no uninitialised memory is sent (D15).
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
    fence::Life,
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

/// Flag of [`ReadHead`]: the server must invalidate the client's key.
pub const NEED_INVAL: u16 = 1 << 0;
/// Flag of [`ReadHead`]: the end of the data, that is what the descriptor has no room for, comes
/// with the response, behind the chunk's new key. Only for servers of which the user of RTRS knows
/// that they support it.
pub const TAIL: u16 = 1 << 1;
/// Flag of [`ReadHead`]: the response may be the immediate of the write of the data, after which
/// the client's key stays valid (decision 0031). A C server does not look at it: it answers as
/// without [`NEED_INVAL`].
pub const WRITE_WITH_IMM: u16 = 1 << 2;
/// The most bytes of data that come with a response.
pub const TAIL_LEN_MAX: u32 = 64;
/// Flag of [`ConnectResponse`]: each response has a new key (`always_invalidate=Y`).
pub const NEW_RKEY: u32 = 1 << 1;
/// Bit of [`ConnectRequest::first_conn`].
pub const FIRST_CONN: u8 = 1 << 0;
/// `FNC1` in [`ConnectRequest::extension`] and [`ConnectResponse::extension`]: the peer knows the
/// fence message (decision 0023). A server says so only to a client that has said it.
pub const FENCES: u32 = 0x3143_4e46;

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
    /// Creates the descriptor of `len` bytes at `addr` with `key`.
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
    /// Reserved for rdma_cm, which writes its own version here for `AF_IB`; 0.
    pub cma_version: u8,
    /// Reserved for rdma_cm as well; 0.
    pub ip_version: u8,
    /// [`MAGIC`].
    pub magic: U16,
    /// [`VERSION`].
    pub version: U16,
    /// The number of this connection in its path, from 0.
    pub cid: U16,
    /// The number of connections of the path.
    pub cid_num: U16,
    /// The number of connects of this path, from 1.
    pub recon_cnt: U16,
    /// The uuid of the path.
    pub sess_uuid: [u8; 16],
    /// The uuid of the session, that is the group of paths.
    pub paths_uuid: [u8; 16],
    /// [`FIRST_CONN`] or 0.
    pub first_conn: u8,
    /// [`FENCES`] or 0. (Protocol 2.0 reserves it.)
    pub extension: U32,
    /// 0.
    pub reserved: [u8; 7],
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
    /// The number of chunks of the session.
    pub queue_depth: U16,
    /// The maximum number of data bytes of a request.
    pub max_io_size: U32,
    /// The maximum number of bytes of user message and head of a request.
    pub max_hdr_size: U32,
    /// [`NEW_RKEY`] or 0.
    pub flags: U32,
    /// [`FENCES`] or 0. (Protocol 2.0 reserves it, and what follows.)
    pub extension: U32,
    /// The number, from 1, of this life of the path in its session; only with [`FENCES`].
    pub path_number: U32,
    /// The session at the server, from its first path to the end of its last one; only with
    /// [`FENCES`].
    pub session: U64,
    /// 0.
    pub reserved: [u8; 20],
}

impl ConnectResponse {
    /// Creates the accept of a connection to chunks of this geometry. `life` is for a client that
    /// knows the fence message.
    pub const fn accept(geometry: &Geometry, new_rkey: bool, life: Option<Life>) -> Self {
        let (extension, path_number, session) = match life {
            Some(life) => (FENCES, life.number(), life.session()),
            None => (0, 0, 0),
        };
        Self {
            magic: U16::new(MAGIC),
            version: U16::new(VERSION),
            errno: U16::new(0),
            queue_depth: U16::new(geometry.queue_depth()),
            max_io_size: U32::new(geometry.chunk_size().saturating_sub(HDR_SIZE_MAX)),
            max_hdr_size: U32::new(HDR_SIZE_MAX),
            flags: U32::new(if new_rkey { NEW_RKEY } else { 0 }),
            extension: U32::new(extension),
            path_number: U32::new(path_number),
            session: U64::new(session),
            reserved: [0; 20],
        }
    }

    /// Creates the reject of a connection.
    pub const fn reject(errno: Errno) -> Self {
        Self {
            magic: U16::new(MAGIC),
            version: U16::new(VERSION),
            errno: U16::new(errno.get().wrapping_neg()),
            queue_depth: U16::new(0),
            max_io_size: U32::new(0),
            max_hdr_size: U32::new(0),
            flags: U32::new(0),
            extension: U32::new(0),
            path_number: U32::new(0),
            session: U64::new(0),
            reserved: [0; 20],
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
    /// The session name, NUL-terminated and NUL-padded.
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
    /// The number of [`Descriptor`]s that follow.
    pub sg_cnt: U16,
    /// 0; without descriptors the negative errno with which the server rejects the session.
    /// (Protocol 2.0 reserves it, and its client rejects a response without descriptors.)
    pub refusal: U32,
}

impl InfoResponse {
    /// Creates the head of a response with `sg_cnt` descriptors.
    pub const fn new(sg_cnt: u16) -> Self {
        Self {
            kind: U16::new(INFO_RESPONSE),
            sg_cnt: U16::new(sg_cnt),
            refusal: U32::new(0),
        }
    }

    /// Creates a response that rejects the session.
    pub const fn refuse(errno: Errno) -> Self {
        Self {
            kind: U16::new(INFO_RESPONSE),
            sg_cnt: U16::new(0),
            // CAST: The field is a signed number.
            refusal: U32::new(errno.to_raw() as u32),
        }
    }
}

/// Head of a write request, after data and user message in the chunk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct WriteHead {
    /// [`WRITE`].
    pub kind: U16,
    /// The number of bytes of the user message directly before this head.
    pub usr_len: U16,
}

impl WriteHead {
    /// Creates the head of a write request.
    #[inline]
    pub const fn new(usr_len: u16) -> Self {
        Self {
            kind: U16::new(WRITE),
            usr_len: U16::new(usr_len),
        }
    }
}

/// Head of a read request, after the space for the data and the user message.
///
/// `sg_cnt` [`Descriptor`]s follow, none or one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReadHead {
    /// [`READ`].
    pub kind: U16,
    /// The number of bytes of the user message directly before this head.
    pub usr_len: U16,
    /// [`NEED_INVAL`], [`TAIL`], [`WRITE_WITH_IMM`].
    pub flags: U16,
    /// The number of descriptors that follow.
    pub sg_cnt: U16,
}

/// Head of a read request with its one descriptor, as a client sends it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReadMessage {
    /// The head.
    pub head: ReadHead,
    /// The destination of the data.
    pub reply: Descriptor,
}

impl ReadHead {
    /// Creates the head of a read request without data; no descriptor follows.
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
    /// Creates a read request with the destination `reply`, whose key the server must invalidate.
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

    /// Returns the message of a read whose key the client invalidates itself.
    #[inline]
    pub const fn without_invalidation(mut self) -> Self {
        self.head.flags = U16::new(0);
        self
    }

    /// Returns the message of a read into memory that stays registered.
    #[inline]
    pub const fn into_registered(mut self) -> Self {
        self.head.flags = U16::new(WRITE_WITH_IMM);
        self
    }

    /// Returns the message of a read whose data ends in the response.
    pub const fn with_tail(mut self) -> Self {
        self.head.flags = U16::new(NEED_INVAL | TAIL);
        self
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
    /// The chunk of the key.
    pub buf_id: U16,
    /// Its new key.
    pub rkey: U32,
}

impl RkeyResponse {
    /// Creates the message with the new key of one chunk.
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
