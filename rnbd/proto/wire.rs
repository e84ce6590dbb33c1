// SPDX-License-Identifier: GPL-2.0

//! The layouts of the messages. All integers are little-endian.
//!
//! Every constructor sets every byte, so no uninitialised memory is sent (D15).
//!
//! Layouts: `drivers/block/rnbd/rnbd-proto.h`.
//!
//! # Reserved bytes
//!
//! Peers of this project use bytes that protocol 2.0 reserves. All of them:
//!
//! | message | bytes | use | valid |
//! |---|---|---|---|
//! | [`SessInfo`] | 8..28 | magic, nonce and boot | after the magic |
//! | [`Open`] | 5 | the protection information that is asked for | if the client has sent a nonce |
//! | [`Open`] | 261 | the seconds after which the client wants an answer | if the client has sent a nonce |
//! | [`OpenResponse`] | 46..48 | the protection information of the device | if the nonce came back |
//! | [`OpenResponse`] | 48..56 | the identity of the disk | if the nonce came back |
//! | [`Io`] | 26..32 | length of the tuples, CRC | if the device has protection information |
//!
//! Without protection information the bytes for it are 0, as C drivers leave or ignore them; so is
//! [`Open::answer_time`] of clients that say none.

use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
// The traits and their derive macros.
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    access::AccessMode,
    answer_time::AnswerTime,
    boot::Boot,
    pi::{
        MessageDigest,
        Wanted, //
    },
    VERSION, //
};

/// Message type of a client's [`SessInfo`].
pub const SESS_INFO: u16 = 0;
/// Message type of a server's [`SessInfo`].
pub const SESS_INFO_RESPONSE: u16 = 1;
/// Message type of [`Open`].
pub const OPEN: u16 = 2;
/// Message type of [`OpenResponse`].
pub const OPEN_RESPONSE: u16 = 3;
/// Message type of [`Io`].
pub const IO: u16 = 4;
/// Message type of [`Close`].
pub const CLOSE: u16 = 5;

/// Bit of [`OpenResponse::cache_policy`]: the device supports FUA.
pub const CACHE_FUA: u8 = 1 << 0;
/// Bit of [`OpenResponse::cache_policy`]: the device has a volatile cache.
pub const CACHE_WRITEBACK: u8 = 1 << 1;

/// A message that is not IO, and what the server answers besides an error number.
pub trait AdminMessage: IntoBytes + Immutable {
    /// The data of the answer; of no bytes if the error number is all.
    type Response: FromBytes + IntoBytes + Immutable;

    /// Returns the thing of the server that it is about.
    fn subject(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AdminMessage for SessInfo {
    type Response = SessInfo;
}

impl AdminMessage for Open {
    type Response = OpenResponse;

    /// Returns the device's name: the server is to open it as the last one wants it.
    fn subject(&self) -> &[u8] {
        &self.dev_name
    }
}

impl AdminMessage for Close {
    type Response = [u8; 0];
}

/// The header of every message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// The message type.
    pub kind: U16,
    /// 0.
    pub reserved: U16,
}

impl Header {
    #[inline]
    const fn new(kind: u16) -> Self {
        Self {
            kind: U16::new(kind),
            reserved: U16::new(0),
        }
    }
}

/// The value of [`SessInfo::magic`] if the bytes after it are valid: "FFB1". The C drivers send
/// zeroes there, or uninitialised memory.
pub const EXTENSION_MAGIC: u32 = 0x3142_4646;

/// `sess_info` and its response: the protocol version.
///
/// The bytes after the version are reserved in protocol 2.0. Peers of this project use them to
/// recognise each other. A client sends [`EXTENSION_MAGIC`] and a random nonce; a server that
/// supports the extension returns both, which uninitialised memory cannot contain, and its boot.
/// From then on the client uses the last 10 bytes of that server's [`OpenResponse`]s.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SessInfo {
    /// [`SESS_INFO`] or [`SESS_INFO_RESPONSE`].
    pub header: Header,
    /// The sender's version; in a response, the one agreed on.
    pub version: u8,
    /// 0.
    pub reserved: [u8; 3],
    /// [`EXTENSION_MAGIC`], or 0.
    pub magic: U32,
    /// The client's nonce; the server's answer has the same.
    pub nonce: U64,
    /// The server's boot; 0 from a client.
    pub boot: U64,
    /// 0.
    pub padding: [u8; 8],
}

impl SessInfo {
    const fn new(kind: u16, version: u8) -> Self {
        Self {
            header: Header::new(kind),
            version,
            reserved: [0; 3],
            magic: U32::new(0),
            nonce: U64::new(0),
            boot: U64::new(0),
            padding: [0; 8],
        }
    }

    /// Creates a client's request with a random `nonce`.
    pub const fn request(nonce: u64) -> Self {
        Self {
            magic: U32::new(EXTENSION_MAGIC),
            nonce: U64::new(nonce),
            ..Self::new(SESS_INFO, VERSION)
        }
    }

    /// Creates a server's answer to a client that has sent no nonce: a C driver.
    pub const fn response(version: u8) -> Self {
        Self::new(SESS_INFO_RESPONSE, version)
    }

    /// Creates a server's answer to a client that has sent `nonce`.
    pub fn response_to(version: u8, nonce: u64, boot: Option<Boot>) -> Self {
        Self {
            magic: U32::new(EXTENSION_MAGIC),
            nonce: U64::new(nonce),
            boot: U64::new(boot.map_or(0, Boot::get)),
            ..Self::new(SESS_INFO_RESPONSE, version)
        }
    }

    /// Returns the nonce, if there is one.
    pub(super) fn nonce(&self) -> Option<u64> {
        (self.magic.get() == EXTENSION_MAGIC).then(|| self.nonce.get())
    }
}

/// `open`: opens a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Open {
    /// [`OPEN`].
    pub header: Header,
    /// An [`AccessMode`] as a number.
    pub access_mode: u8,
    /// The byte that [`Wanted::from_wire`] reads; 0 for no protection information.
    pub pi: u8,
    /// The device's name, NUL-terminated and NUL-padded.
    pub dev_name: [u8; 255],
    /// The byte that [`AnswerTime::from_wire`] reads; 0 for a client that says none.
    pub answer_time: u8,
    /// 0.
    pub padding: [u8; 2],
}

impl Open {
    /// Creates the message for the device `name`; returns `None` if that has more than
    /// [`DEVICE_NAME_MAX`](super::DEVICE_NAME_MAX) bytes or contains a NUL.
    pub fn new(name: &[u8], access_mode: AccessMode, pi: Option<Wanted>) -> Option<Self> {
        if name.len() > super::DEVICE_NAME_MAX || name.contains(&0) {
            return None;
        }
        let mut dev_name = [0; 255];
        for (to, from) in dev_name.iter_mut().zip(name) {
            *to = *from;
        }
        Some(Self {
            header: Header::new(OPEN),
            access_mode: access_mode.to_wire(),
            pi: Wanted::to_wire(pi),
            dev_name,
            answer_time: 0,
            padding: [0; 2],
        })
    }

    /// Returns the message of a client that says how long it waits.
    #[must_use]
    pub const fn with_answer_time(self, answer_time: Option<AnswerTime>) -> Self {
        Self {
            answer_time: AnswerTime::to_wire(answer_time),
            ..self
        }
    }
}

/// `open_rsp`: the properties of the device; `device::Device` in wire format.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OpenResponse {
    /// [`OPEN_RESPONSE`].
    pub header: Header,
    /// The device's number in its session.
    pub device_id: U32,
    /// The capacity in sectors of 512 bytes.
    pub nsectors: U64,
    /// The maximum number of sectors of an IO.
    pub max_hw_sectors: U32,
    /// The maximum number of sectors of a write-zeroes; 0: not supported.
    pub max_write_zeroes_sectors: U32,
    /// The maximum number of sectors of a discard; 0: not supported.
    pub max_discard_sectors: U32,
    /// The granularity of discards in bytes.
    pub discard_granularity: U32,
    /// The alignment of discards in bytes.
    pub discard_alignment: U32,
    /// The physical block size in bytes.
    pub physical_block_size: U16,
    /// The logical block size in bytes.
    pub logical_block_size: U16,
    /// The maximum number of segments of an IO.
    pub max_segments: U16,
    /// Whether the device supports secure erase: 0 or 1.
    pub secure_discard: U16,
    /// 0; formerly whether the device is rotational.
    pub obsolete_rotational: u8,
    /// [`CACHE_FUA`], [`CACHE_WRITEBACK`].
    pub cache_policy: u8,
    /// The bytes that [`Geometry::from_wire`](super::pi::Geometry::from_wire) reads; 0 for no
    /// protection information.
    pub pi: [u8; 2],
    /// Reserved in protocol 2.0. For clients that have sent a nonce, see [`SessInfo`]: the device's
    /// identity. Otherwise 0, or uninitialised memory from a C driver.
    pub identity: U64,
}

/// `close`: closes a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Close {
    /// [`CLOSE`].
    pub header: Header,
    /// The device's number in its session.
    pub device_id: U32,
}

impl Close {
    /// Creates the message for device `device_id`.
    pub const fn new(device_id: u32) -> Self {
        Self {
            header: Header::new(CLOSE),
            device_id: U32::new(device_id),
        }
    }
}

/// `io` of version 1, without a priority.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IoV1 {
    /// [`IO`].
    pub header: Header,
    /// The device's number in its session.
    pub device_id: U32,
    /// The first sector, of 512 bytes.
    pub sector: U64,
    /// Operation and flags, `flags::Rw`.
    pub rw: U32,
    /// The number of bytes of the operation.
    pub bi_size: U32,
}

/// `io`: one operation on a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Io {
    /// The part of version 1.
    pub v1: IoV1,
    /// The IO priority, `include/uapi/linux/ioprio.h`.
    pub prio: U16,
    /// The number of bytes of tuples behind the data, for a device that was opened with protection
    /// information; otherwise 0, or uninitialised memory from a C driver.
    pub pi_len: U16,
    /// The CRC-32C of the bytes before it and of a write's tuples, for a read or write with
    /// `pi_len`, see [`MessageDigest`]; otherwise as `pi_len`.
    pub pi_crc: U32,
}

impl Io {
    /// Creates an IO message; `rw` is from `flags::Rw::to_wire`.
    #[inline]
    pub const fn new(device_id: u32, sector: u64, rw: u32, bi_size: u32, prio: u16) -> Self {
        Self {
            v1: IoV1 {
                header: Header::new(IO),
                device_id: U32::new(device_id),
                sector: U64::new(sector),
                rw: U32::new(rw),
                bi_size: U32::new(bi_size),
            },
            prio: U16::new(prio),
            pi_len: U16::new(0),
            pi_crc: U32::new(0),
        }
    }

    /// Returns the message with `tuples_len` bytes of tuples, without a digest yet.
    pub const fn with_tuples(self, tuples_len: u16) -> Self {
        Self {
            pi_len: U16::new(tuples_len),
            ..self
        }
    }

    /// Returns the message with the CRC of its start and its tuples, see [`MessageDigest`].
    pub const fn with_digest(self, crc: u32) -> Self {
        Self {
            pi_crc: U32::new(crc),
            ..self
        }
    }

    /// Returns what the message says of its tuples.
    pub(super) fn digest(&self) -> MessageDigest {
        MessageDigest {
            tuples_len: self.pi_len.get(),
            crc: self.pi_crc.get(),
        }
    }
}

impl OpenResponse {
    pub(super) const HEADER: Header = Header::new(OPEN_RESPONSE);
}

const _: () = assert!(size_of::<SessInfo>() == 36);
const _: () = assert!(size_of::<Open>() == 264);
const _: () = assert!(size_of::<OpenResponse>() == 56);
const _: () = assert!(size_of::<Close>() == 8);
const _: () = assert!(size_of::<IoV1>() == 24);
const _: () = assert!(size_of::<Io>() == 32);
const _: () = assert!(core::mem::offset_of!(Open, pi) == 5);
const _: () = assert!(core::mem::offset_of!(Open, answer_time) == 261);
const _: () = assert!(core::mem::offset_of!(OpenResponse, pi) == 46);
const _: () = assert!(core::mem::offset_of!(Io, pi_len) == 26);
const _: () = assert!(super::pi::message_digest::DIGESTED_LEN == 28);
