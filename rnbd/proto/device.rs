// SPDX-License-Identifier: GPL-2.0

//! The properties of an opened device, which the server sends.

use zerocopy::{
    little_endian::{
        U16,
        U32,
        U64, //
    },
    FromBytes, //
};

use super::{
    boot::Boot,
    identity::Identity,
    pi::geometry::{
        Geometry,
        UnknownGeometry, //
    },
    wire::{
        OpenResponse,
        SessInfo,
        CACHE_FUA,
        CACHE_WRITEBACK,
        OPEN_RESPONSE,
        SESS_INFO_RESPONSE, //
    },
    SECTOR_SIZE,
    VERSION, //
};

/// A device's number, size and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The number in its session.
    pub device_id: u32,
    /// The capacity in sectors of 512 bytes.
    pub nsectors: u64,
    /// The maximum number of sectors of an IO.
    pub max_hw_sectors: u32,
    /// The maximum number of sectors of a write-zeroes; 0: not supported.
    pub max_write_zeroes_sectors: u32,
    /// The maximum number of sectors of a discard; 0: not supported.
    pub max_discard_sectors: u32,
    /// The granularity of discards in bytes.
    pub discard_granularity: u32,
    /// The alignment of discards in bytes.
    pub discard_alignment: u32,
    /// The physical block size in bytes.
    pub physical_block_size: u16,
    /// The logical block size in bytes.
    pub logical_block_size: u16,
    /// The maximum number of segments of an IO.
    pub max_segments: u16,
    /// The device supports secure erase.
    pub secure_discard: bool,
    /// The device supports FUA.
    pub fua: bool,
    /// The device has a volatile cache, and therefore gets flushes.
    pub writeback: bool,
    /// The identity of the disk, if the server sends it.
    pub identity: Option<Identity>,
    /// The protection information of its IO, if it has one.
    pub pi: Option<Geometry>,
}

/// The properties of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// The version agreed on.
    pub version: u8,
    /// The boot of its machine, if it sends it.
    pub boot: Option<Boot>,
    /// The server has returned the client's nonce, so its reserved bytes are valid.
    pub is_extended: bool,
}

/// The reason why a client rejects a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadResponse {
    /// The answer is shorter than the message.
    Truncated,
    /// The message is of another type.
    Kind(u16),
    /// A block size is not a power of two, is below 512, or is smaller than the logical one.
    BlockSize(u16),
    /// The capacity exceeds the range of a file offset.
    Capacity(u64),
    /// The protection information is unknown.
    Pi(UnknownGeometry),
}

impl core::fmt::Display for BadResponse {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BadResponse::Truncated => f.write_str("answer too short"),
            BadResponse::Kind(k) => write!(f, "answer of wrong type {k}"),
            BadResponse::BlockSize(b) => write!(f, "impossible block size {b}"),
            BadResponse::Capacity(n) => write!(f, "impossible capacity of {n} sectors"),
            BadResponse::Pi(reason) => reason.fmt(f),
        }
    }
}

impl Device {
    /// Returns the capacity in sectors that a disk has: whole intervals of protection information.
    pub const fn capacity_sectors(&self) -> u64 {
        let rest = match self.pi {
            Some(pi) => self.nsectors & pi.interval_sectors().wrapping_sub(1),
            None => 0,
        };
        self.nsectors.saturating_sub(rest)
    }

    /// Encodes a server's answer.
    pub const fn to_wire(&self) -> OpenResponse {
        let fua = if self.fua { CACHE_FUA } else { 0 };
        let writeback = if self.writeback { CACHE_WRITEBACK } else { 0 };
        OpenResponse {
            header: OpenResponse::HEADER,
            device_id: U32::new(self.device_id),
            nsectors: U64::new(self.nsectors),
            max_hw_sectors: U32::new(self.max_hw_sectors),
            max_write_zeroes_sectors: U32::new(self.max_write_zeroes_sectors),
            max_discard_sectors: U32::new(self.max_discard_sectors),
            discard_granularity: U32::new(self.discard_granularity),
            discard_alignment: U32::new(self.discard_alignment),
            physical_block_size: U16::new(self.physical_block_size),
            logical_block_size: U16::new(self.logical_block_size),
            max_segments: U16::new(self.max_segments),
            secure_discard: U16::new(self.secure_discard as u16),
            obsolete_rotational: 0,
            cache_policy: fua | writeback,
            pi: match self.pi {
                Some(geometry) => geometry.to_wire(),
                None => [0; 2],
            },
            identity: U64::new(match self.identity {
                Some(identity) => identity.get(),
                None => 0,
            }),
        }
    }

    /// Parses the answer of `server`, and checks that a disk can have the block sizes and the
    /// capacity.
    pub fn parse(bytes: &[u8], server: &Server) -> Result<Self, BadResponse> {
        let (msg, _) = OpenResponse::ref_from_prefix(bytes).map_err(|_| BadResponse::Truncated)?;
        if msg.header.kind.get() != OPEN_RESPONSE {
            return Err(BadResponse::Kind(msg.header.kind.get()));
        }
        let logical = msg.logical_block_size.get();
        if !logical.is_power_of_two() || u32::from(logical) < SECTOR_SIZE {
            return Err(BadResponse::BlockSize(logical));
        }
        let physical = msg.physical_block_size.get();
        if !physical.is_power_of_two() || physical < logical {
            return Err(BadResponse::BlockSize(physical));
        }
        let nsectors = msg.nsectors.get();
        if nsectors > (i64::MAX as u64) >> SECTOR_SIZE.trailing_zeros() {
            return Err(BadResponse::Capacity(nsectors));
        }
        let pi = match server.is_extended {
            true => Geometry::from_wire(msg.pi).map_err(BadResponse::Pi)?,
            false => None,
        };
        Ok(Self {
            device_id: msg.device_id.get(),
            nsectors,
            max_hw_sectors: msg.max_hw_sectors.get(),
            max_write_zeroes_sectors: msg.max_write_zeroes_sectors.get(),
            max_discard_sectors: msg.max_discard_sectors.get(),
            discard_granularity: msg.discard_granularity.get(),
            discard_alignment: msg.discard_alignment.get(),
            physical_block_size: physical,
            logical_block_size: logical,
            max_segments: msg.max_segments.get(),
            secure_discard: msg.secure_discard.get() != 0,
            fua: msg.cache_policy & CACHE_FUA != 0,
            writeback: msg.cache_policy & CACHE_WRITEBACK != 0,
            identity: Identity::from_wire(msg.identity.get()).filter(|_| server.is_extended),
            pi,
        })
    }
}

/// Returns the version that both sides support.
pub const fn agree(theirs: u8) -> u8 {
    if theirs < VERSION {
        theirs
    } else {
        VERSION
    }
}

/// Reads a server's answer to a `sess_info` with `nonce`. Unless the nonce comes back, the content
/// of the reserved bytes has no meaning.
pub fn parse_sess_info_response(bytes: &[u8], nonce: u64) -> Result<Server, BadResponse> {
    let (msg, _) = SessInfo::ref_from_prefix(bytes).map_err(|_| BadResponse::Truncated)?;
    let kind = msg.header.kind.get();
    if kind != SESS_INFO_RESPONSE {
        return Err(BadResponse::Kind(kind));
    }
    let is_extended = msg.nonce() == Some(nonce);
    Ok(Server {
        version: agree(msg.version),
        boot: Boot::from_number(msg.boot.get()).filter(|_| is_extended),
        is_extended,
    })
}
