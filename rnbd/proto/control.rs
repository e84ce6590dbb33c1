// SPDX-License-Identifier: GPL-2.0

//! What people write to a mapped device's files.

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text::{
        self,
        NumberError, //
    }, //
};

/// How a device is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// Only if nobody has it open (`EBUSY`).
    Normal,
    /// In any case; what is in flight ends with an error.
    Force,
}

/// A word that the file does not know (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl UnknownWord {
    /// Returns what the writer sees.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl Unmap {
    /// Reads what was written to `unmap_device`.
    pub fn parse(written: &[u8]) -> Result<Self, UnknownWord> {
        match text::trim(written) {
            b"normal" => Ok(Self::Normal),
            b"force" => Ok(Self::Force),
            _ => Err(UnknownWord),
        }
    }
}

/// Reads what was written to `remap_device` or `force_close`: `1`.
pub fn parse_one(written: &[u8]) -> Result<(), UnknownWord> {
    match text::trim(written) {
        b"1" => Ok(()),
        _ => Err(UnknownWord),
    }
}

/// Reads what was written to `resize`: the new size in sectors, decimal, `0x` or `0` octal; not 0.
pub fn parse_resize(written: &[u8]) -> Result<u64, NumberError> {
    match text::parse_u64(written, 0) {
        Ok(0) => Err(NumberError::Invalid),
        parsed => parsed,
    }
}

/// State of a mapped device, as its `state` file shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceState {
    /// Being mapped.
    Init = 0,
    /// The server has it open.
    Mapped = 1,
    /// The session is down.
    Disconnected = 2,
    /// Unmapped; about to go.
    Unmapped = 3,
    /// The session is up, and the server has closed the device: it stays so until somebody asks for
    /// it.
    Fenced = 4,
}

impl DeviceState {
    /// Reads a state that was stored as a number.
    #[inline]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Init,
            1 => Self::Mapped,
            2 => Self::Disconnected,
            3 => Self::Unmapped,
            4 => Self::Fenced,
            _ => return None,
        })
    }

    /// Says whether `remap_device` may go on: `EALREADY` if the device is mapped, `ENODEV` if it
    /// is gone, `EBUSY` while it is being mapped.
    pub const fn check_remap(self) -> Result<(), Errno> {
        match self {
            Self::Disconnected | Self::Fenced => Ok(()),
            Self::Mapped => Err(Errno::EALREADY),
            Self::Unmapped => Err(Errno::ENODEV),
            Self::Init => Err(Errno::EBUSY),
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The words of the C driver, which its user-space tool knows.
        f.write_str(match self {
            Self::Init => "init",
            Self::Mapped => "open",
            Self::Disconnected | Self::Fenced => "closed",
            Self::Unmapped => "unmapped",
        })
    }
}
