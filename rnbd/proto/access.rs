// SPDX-License-Identifier: GPL-2.0

//! The access modes of devices.

use core::fmt;

use ferro_proto::errno::Errno;

use super::flags::Ops;

/// The access mode of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessMode {
    /// Read only.
    ReadOnly,
    /// Read and write, as the only writer.
    #[default]
    ReadWrite,
    /// Read and write, with at most one other writer, for the migration of a virtual machine.
    Migration,
}

/// The access mode is not known (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl AccessMode {
    /// Converts the number of an open message.
    pub const fn from_wire(raw: u8) -> Result<Self, UnknownMode> {
        match raw {
            0 => Ok(Self::ReadOnly),
            1 => Ok(Self::ReadWrite),
            2 => Ok(Self::Migration),
            _ => Err(UnknownMode),
        }
    }

    /// Returns the number for the wire.
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::ReadOnly => 0,
            Self::ReadWrite => 1,
            Self::Migration => 2,
        }
    }

    /// Parses the word of `access_mode=`.
    pub fn parse(word: &[u8]) -> Result<Self, UnknownMode> {
        match word {
            b"ro" => Ok(Self::ReadOnly),
            b"rw" => Ok(Self::ReadWrite),
            b"migration" => Ok(Self::Migration),
            _ => Err(UnknownMode),
        }
    }

    /// Returns whether writing operations are permitted; the server rejects them otherwise (D8).
    #[inline]
    pub const fn may_write(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }

    /// Returns the operations that are permitted.
    pub const fn permitted(self) -> Ops {
        match self {
            Self::ReadOnly => Ops::READING,
            Self::ReadWrite | Self::Migration => Ops::ALL,
        }
    }

    /// Checks whether a device that `writers` clients have open for writing can be opened in this
    /// mode: read-only always, for writing by one, for migration by two. Returns `EPERM` if not.
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
