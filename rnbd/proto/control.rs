// SPDX-License-Identifier: GPL-2.0

//! The values written to the files of a mapped device.

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text::{
        self,
        NumberError, //
    }, //
};

use super::io_state::IoState;

/// The modes of unmapping a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// Unmaps the device unless it is open (`EBUSY`).
    Normal,
    /// Closes the device even if it is open; requests in flight end with an error.
    Force,
}

/// The word is not valid for the file (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl UnknownWord {
    /// Returns the error of the write.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl Unmap {
    /// Parses a value of `unmap_device`.
    pub fn parse(written: &[u8]) -> Result<Self, UnknownWord> {
        match text::trim(written) {
            b"normal" => Ok(Self::Normal),
            b"force" => Ok(Self::Force),
            _ => Err(UnknownWord),
        }
    }
}

/// The modes of reopening a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remap {
    /// Accepts the same disk only.
    Same,
    /// Accepts any disk with the device's name.
    Any,
}

impl Remap {
    /// Parses a value of `remap_device`.
    pub fn parse(written: &[u8]) -> Result<Self, UnknownWord> {
        match text::trim(written) {
            b"1" => Ok(Self::Same),
            b"force" => Ok(Self::Any),
            _ => Err(UnknownWord),
        }
    }
}

/// Parses a value of `force_close`: `1`.
pub fn parse_one(written: &[u8]) -> Result<(), UnknownWord> {
    match text::trim(written) {
        b"1" => Ok(()),
        _ => Err(UnknownWord),
    }
}

/// Parses a value of `resize`: the new size in sectors, decimal, `0x` or `0` octal; not 0.
pub fn parse_resize(written: &[u8]) -> Result<u64, NumberError> {
    match text::parse_u64(written, 0) {
        Ok(0) => Err(NumberError::Invalid),
        parsed => parsed,
    }
}

/// The state of a mapped device, as shown in its `state` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceState {
    /// The device is being mapped.
    Init = 0,
    /// The server has it open.
    Mapped = 1,
    /// The session is down.
    Disconnected = 2,
    /// Unmapped; about to be removed.
    Unmapped = 3,
    /// The session is connected, and the server has closed the device: it stays so until
    /// `remap_device` is written.
    Fenced = 4,
}

impl DeviceState {
    /// Converts a stored number to a state.
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

    /// Returns the state of a device whose requests are sent as `io_state` says. An answer that
    /// says that the server does not have it open changes that first, and so fences the device.
    pub const fn seen(self, io_state: IoState) -> Self {
        match (self, io_state) {
            (Self::Mapped, IoState::Failing) => Self::Fenced,
            _ => self,
        }
    }

    /// Checks whether the device may be used that a server has opened; `is_same_outage`: no outage
    /// has begun since it was asked. Returns whether it was open before. Returns `ENOENT` if it is
    /// unmapped, and `ECONNABORTED` if its number is not valid any more.
    pub const fn check_opened(self, is_same_outage: bool) -> Result<bool, Errno> {
        match self {
            Self::Unmapped => Err(Errno::ENOENT),
            _ if !is_same_outage => Err(Errno::ECONNABORTED),
            _ => Ok(!matches!(self, Self::Init)),
        }
    }

    /// Returns whether an outage queues the requests. Nothing is sent for a device in another
    /// state, and an outage does not end a fence.
    pub const fn queues_in_outage(self) -> bool {
        matches!(self, Self::Mapped)
    }

    /// Returns whether the requests fail when the outage has taken too long.
    pub const fn fails_with_outage(self) -> bool {
        matches!(self, Self::Disconnected)
    }

    /// Returns whether the device is opened again after an outage without being asked to.
    pub const fn is_opened_after_outage(self) -> bool {
        matches!(self, Self::Disconnected)
    }

    /// Checks whether a device that was silent is asked for again. Returns `EALREADY` if another
    /// thread has opened it, `ENOENT` if one unmaps it: what has happened, and not that it was
    /// silent.
    pub const fn check_to_be_opened(self) -> Result<(), Errno> {
        match self {
            Self::Init | Self::Disconnected | Self::Fenced => Ok(()),
            Self::Mapped => Err(Errno::EALREADY),
            Self::Unmapped => Err(Errno::ENOENT),
        }
    }

    /// Returns whether `remap_device` asks the server first, which may have closed the device since
    /// the last request.
    pub const fn asks_before_remap(self) -> bool {
        matches!(self, Self::Mapped)
    }

    /// Checks whether `remap_device` may proceed. Returns `EALREADY` if the device is mapped,
    /// `ENODEV` if it is unmapped, `EBUSY` while it is being mapped.
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
        // The words of the C driver, which its user-space tool parses.
        f.write_str(match self {
            Self::Init => "init",
            Self::Mapped => "open",
            Self::Disconnected | Self::Fenced => "closed",
            Self::Unmapped => "unmapped",
        })
    }
}
