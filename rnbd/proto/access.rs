// SPDX-License-Identifier: GPL-2.0

//! Who may open a device how.

use core::fmt;

use ferro_proto::errno::Errno;

/// How a client wants to use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessMode {
    /// Only read.
    ReadOnly,
    /// Read and write, nobody else writes.
    #[default]
    ReadWrite,
    /// Read and write while one other writer still is there: a virtual machine moves house.
    Migration,
}

/// The access mode is not known (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl AccessMode {
    /// Reads the number of an open message.
    pub const fn from_wire(raw: u8) -> Result<Self, UnknownMode> {
        match raw {
            0 => Ok(Self::ReadOnly),
            1 => Ok(Self::ReadWrite),
            2 => Ok(Self::Migration),
            _ => Err(UnknownMode),
        }
    }

    /// Returns the number that goes on the wire.
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::ReadOnly => 0,
            Self::ReadWrite => 1,
            Self::Migration => 2,
        }
    }

    /// Reads the word of `access_mode=`.
    pub fn parse(word: &[u8]) -> Result<Self, UnknownMode> {
        match word {
            b"ro" => Ok(Self::ReadOnly),
            b"rw" => Ok(Self::ReadWrite),
            b"migration" => Ok(Self::Migration),
            _ => Err(UnknownMode),
        }
    }

    /// Says whether writing operations are allowed; the server refuses them otherwise (D8).
    #[inline]
    pub const fn may_write(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }

    /// Says whether a device that `writers` clients have open for writing can be opened like this:
    /// read-only always, for writing by one, for migration by two. `EPERM` if not.
    pub const fn check(self, writers: u32) -> Result<(), Errno> {
        let allowed = match self {
            Self::ReadOnly => true,
            Self::ReadWrite => writers == 0,
            Self::Migration => writers < 2,
        };
        if allowed {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
            Self::Migration => "migration",
        })
    }
}
