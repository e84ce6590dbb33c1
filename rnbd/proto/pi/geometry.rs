// SPDX-License-Identifier: GPL-2.0

//! The properties of a device's tuples, and the number that an IO has.

use core::fmt;

use super::super::SECTOR_SIZE;

/// The most bytes of tuples of one IO. With the io message and the head they fit into the part of a
/// chunk that RTRS reserves for messages (4096 bytes), so the data may be as long as without them.
pub const TUPLES_LEN_MAX: u16 = 2048;

/// The use that the server makes of the tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The tuples protect the transfer: the server verifies and drops those of a write, and
    /// generates those of a read from the data of its disk.
    Wire,
    /// The server's disk gets the tuples of writes, and gives those of reads.
    Pass,
    /// The server keeps them in a sidecar on its disk, which has no room for them.
    Store,
}

impl Mode {
    const fn from_wire(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Wire),
            2 => Some(Self::Pass),
            3 => Some(Self::Store),
            _ => None,
        }
    }

    const fn to_wire(self) -> u8 {
        match self {
            Self::Wire => 1,
            Self::Pass => 2,
            Self::Store => 3,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wire => "wire",
            Self::Pass => "pass",
            Self::Store => "store",
        })
    }
}

/// The layout of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 16 bytes: CRC64-NVMe, application tag of 2 bytes, reference tag of 6; for 4096 bytes.
    Crc64,
    /// 8 bytes: CRC16 of T10-DIF, application tag of 2 bytes, reference tag of 4; for 512 or 4096
    /// bytes. Type 1 of T10: the reference tag is the address.
    T10,
}

impl Format {
    pub(super) const fn from_wire(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Crc64),
            2 => Some(Self::T10),
            _ => None,
        }
    }

    pub(super) const fn to_wire(self) -> u8 {
        match self {
            Self::Crc64 => 1,
            Self::T10 => 2,
        }
    }

    /// Returns the bytes of a tuple.
    #[inline]
    pub const fn tuple_bytes(self) -> u32 {
        match self {
            Self::Crc64 => 16,
            Self::T10 => 8,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crc64 => "crc64",
            Self::T10 => "t10",
        })
    }
}

/// The protection information of an open device.
///
/// # Invariants
///
/// `1 << interval_exp` is an interval that `format` has, 512 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    mode: Mode,
    format: Format,
    interval_exp: u8,
}

/// The two bytes of an OPEN answer are no geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownGeometry(pub [u8; 2]);

impl fmt::Display for UnknownGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, interval] = self.0;
        write!(f, "unknown protection information {kind:#04x} {interval}")
    }
}

impl Geometry {
    /// Creates one; returns `None` for an interval in bytes that the format does not have.
    pub const fn new(mode: Mode, format: Format, interval_bytes: u32) -> Option<Self> {
        let interval_exp = match (format, interval_bytes) {
            (Format::Crc64 | Format::T10, 4096) => 12,
            (Format::T10, 512) => 9,
            _ => return None,
        };
        // INVARIANT: All pairs are above.
        Some(Self {
            mode,
            format,
            interval_exp,
        })
    }

    /// Reads the two bytes of an OPEN answer; zeroes are a device without protection information.
    pub const fn from_wire(raw: [u8; 2]) -> Result<Option<Self>, UnknownGeometry> {
        let [kind, interval_exp] = raw;
        if kind == 0 && interval_exp == 0 {
            return Ok(None);
        }
        let (mode, format) = (Mode::from_wire(kind & 0xf), Format::from_wire(kind >> 4));
        let (Some(mode), Some(format)) = (mode, format) else {
            return Err(UnknownGeometry(raw));
        };
        let interval_bytes = match interval_exp {
            0..32 => 1u32.wrapping_shl(interval_exp as u32),
            _ => 0,
        };
        match Self::new(mode, format, interval_bytes) {
            Some(geometry) => Ok(Some(geometry)),
            None => Err(UnknownGeometry(raw)),
        }
    }

    /// Returns the two bytes for an OPEN answer.
    pub const fn to_wire(self) -> [u8; 2] {
        [
            self.mode.to_wire() | self.format.to_wire() << 4,
            self.interval_exp,
        ]
    }

    /// Returns what becomes of the tuples.
    #[inline]
    pub const fn mode(self) -> Mode {
        self.mode
    }

    /// Returns the layout of a tuple.
    #[inline]
    pub const fn format(self) -> Format {
        self.format
    }

    /// Returns the bytes of data that a tuple protects, 512 or 4096.
    #[inline]
    pub const fn interval_bytes(self) -> u32 {
        // The exponent is 9 or 12.
        1u32.wrapping_shl(self.interval_exp as u32)
    }

    /// Returns the sectors of an interval, 1 or 8.
    #[inline]
    pub const fn interval_sectors(self) -> u64 {
        (self.interval_bytes() >> SECTOR_SIZE.trailing_zeros()) as u64
    }

    /// Returns the intervals of `size` bytes of data, which are whole ones.
    #[inline]
    pub const fn intervals(self, size: u32) -> u32 {
        size.wrapping_shr(self.interval_exp as u32)
    }

    /// Returns the bytes of the tuples of `size` bytes of data; `None` if these are not whole
    /// intervals, at least one, or have more tuples than an IO may have.
    #[inline]
    pub const fn tuples_len(self, size: u32) -> Option<u16> {
        let inside = size & self.interval_bytes().wrapping_sub(1);
        if size == 0 || inside != 0 || size > self.size_max() {
            return None;
        }
        // CAST: At most `TUPLES_LEN_MAX`, by the check of the size.
        Some(self.intervals(size).wrapping_mul(self.format.tuple_bytes()) as u16)
    }

    /// Returns the most bytes of data of an IO.
    pub const fn size_max(self) -> u32 {
        let intervals = match self.format {
            Format::Crc64 => TUPLES_LEN_MAX as u32 / 16,
            Format::T10 => TUPLES_LEN_MAX as u32 / 8,
        };
        // At most 256 intervals of 4096 bytes.
        intervals.wrapping_mul(self.interval_bytes())
    }

    /// Returns the reference tag of the interval that begins at `sector`; `None` if none does.
    #[inline]
    pub const fn reference(self, sector: u64) -> Option<u64> {
        let sectors = self.interval_sectors();
        if sector & sectors.wrapping_sub(1) != 0 {
            return None;
        }
        Some(sector.wrapping_shr(sectors.trailing_zeros()))
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = self.interval_bytes();
        write!(f, "{} {} for each {interval} bytes", self.mode, self.format)
    }
}
