// SPDX-License-Identifier: GPL-2.0

//! The messages, byte for byte. All integers are little-endian.
//!
//! Every constructor sets every byte, so nothing of our memory goes on the wire (D15).
//!
//! Layouts: `drivers/block/rnbd/rnbd-proto.h`.

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
    access::AccessMode,
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

/// Bit of [`OpenResponse::cache_policy`]: the device honours FUA.
pub const CACHE_FUA: u8 = 1 << 0;
/// Bit of [`OpenResponse::cache_policy`]: the device has a volatile cache.
pub const CACHE_WRITEBACK: u8 = 1 << 1;

/// What every message begins with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Message type.
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

/// `sess_info` and its response: which protocol version.
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
    pub reserved: [u8; 31],
}

impl SessInfo {
    /// Creates a client's offer.
    pub const fn request() -> Self {
        Self {
            header: Header::new(SESS_INFO),
            version: VERSION,
            reserved: [0; 31],
        }
    }

    /// Creates a server's answer.
    pub const fn response(version: u8) -> Self {
        Self {
            header: Header::new(SESS_INFO_RESPONSE),
            version,
            reserved: [0; 31],
        }
    }
}

/// `open`: asks for a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Open {
    /// [`OPEN`].
    pub header: Header,
    /// An [`AccessMode`] as a number.
    pub access_mode: u8,
    /// 0.
    pub reserved: u8,
    /// The device's name, NUL-terminated and NUL-padded.
    pub dev_name: [u8; 255],
    /// 0.
    pub padding: [u8; 3],
}

impl Open {
    /// Asks for the device `name`; `None` if that has more than
    /// [`DEVICE_NAME_MAX`](super::DEVICE_NAME_MAX) bytes or a NUL in it.
    pub fn new(name: &[u8], access_mode: AccessMode) -> Option<Self> {
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
            reserved: 0,
            dev_name,
            padding: [0; 3],
        })
    }
}

/// `open_rsp`: what the device is like. `device::Device` is the same with numbers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OpenResponse {
    /// [`OPEN_RESPONSE`].
    pub header: Header,
    /// The device's number in its session.
    pub device_id: U32,
    /// Capacity in sectors of 512 bytes.
    pub nsectors: U64,
    /// Most sectors of one IO.
    pub max_hw_sectors: U32,
    /// Most sectors of one write-zeroes; 0: not supported.
    pub max_write_zeroes_sectors: U32,
    /// Most sectors of one discard; 0: not supported.
    pub max_discard_sectors: U32,
    /// Granularity of discards in bytes.
    pub discard_granularity: U32,
    /// Alignment of discards in bytes.
    pub discard_alignment: U32,
    /// Physical block size in bytes.
    pub physical_block_size: U16,
    /// Logical block size in bytes.
    pub logical_block_size: U16,
    /// Most segments of one IO.
    pub max_segments: U16,
    /// The device can erase securely: 0 or 1.
    pub secure_discard: U16,
    /// 0; a rotational device once.
    pub obsolete_rotational: u8,
    /// [`CACHE_FUA`], [`CACHE_WRITEBACK`].
    pub cache_policy: u8,
    /// 0.
    pub reserved: [u8; 10],
}

/// `close`: gives a device back.
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
    /// Gives device `device_id` back.
    pub const fn new(device_id: u32) -> Self {
        Self {
            header: Header::new(CLOSE),
            device_id: U32::new(device_id),
        }
    }
}

/// `io` as version 1 had it: without a priority.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IoV1 {
    /// [`IO`].
    pub header: Header,
    /// The device's number in its session.
    pub device_id: U32,
    /// First sector, of 512 bytes.
    pub sector: U64,
    /// Operation and flags, `flags::Rw`.
    pub rw: U32,
    /// Bytes that the operation concerns.
    pub bi_size: U32,
}

/// `io`: one operation on a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Io {
    /// What version 1 has, too.
    pub v1: IoV1,
    /// IO priority, `include/uapi/linux/ioprio.h`.
    pub prio: U16,
    /// 0.
    pub padding: [u8; 6],
}

impl Io {
    /// Makes an IO message; `rw` comes from `flags::Rw::to_wire`.
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
            padding: [0; 6],
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
