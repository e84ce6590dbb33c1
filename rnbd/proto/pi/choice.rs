// SPDX-License-Identifier: GPL-2.0

//! The agreement of client and server on the protection information of a device.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    Format,
    Geometry,
    Mode, //
};

/// The place where a server's disk keeps tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No place: the disk keeps none.
    Nowhere,
    /// The disk stores those of this format, each of so many bytes of data.
    ByDisk(Format, u32),
    /// A sidecar (`rnbd/sidecar`): [`Format::Crc64`], intervals of 4096 bytes.
    InSidecar,
}

/// The protection information that a client asks for when it opens a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any format, by the server's choice.
    Any,
    /// Exactly this format.
    Format(Format),
}

/// The byte of an OPEN is nothing that can be asked for (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWanted(pub u8);

impl fmt::Display for UnknownWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown protection information {} asked for", self.0)
    }
}

impl Wanted {
    /// Reads the byte of an OPEN; 0 is the device without protection information.
    pub const fn from_wire(raw: u8) -> Result<Option<Self>, UnknownWanted> {
        match raw {
            0 => Ok(None),
            1 => Ok(Some(Self::Any)),
            _ => match Format::from_wire(raw.wrapping_sub(1)) {
                Some(format) => Ok(Some(Self::Format(format))),
                None => Err(UnknownWanted(raw)),
            },
        }
    }

    /// Returns the byte for an OPEN.
    pub const fn to_wire(wanted: Option<Self>) -> u8 {
        match wanted {
            None => 0,
            Some(Self::Any) => 1,
            // The numbers of formats are small.
            Some(Self::Format(format)) => format.to_wire().wrapping_add(1),
        }
    }

    /// Returns what a server offers for a disk with logical blocks of `block_bytes` that keeps
    /// tuples as `kept` says; `None` if it has nothing that is wanted.
    ///
    /// Tuples that are kept are those of the client, others protect the transfer.
    pub const fn offer(self, block_bytes: u32, kept: Kept) -> Option<Geometry> {
        let stored = match kept {
            Kept::Nowhere => None,
            Kept::ByDisk(format, interval_bytes) => Some((Mode::Pass, format, interval_bytes)),
            Kept::InSidecar => Some((Mode::Store, Format::Crc64, 4096)),
        };
        if let Some((mode, format, interval_bytes)) = stored {
            if self.accepts(format) {
                let stored = Geometry::new(mode, format, interval_bytes);
                if stored.is_some() {
                    return stored;
                }
            }
        }
        let (format, interval_bytes) = match self {
            Self::Any | Self::Format(Format::Crc64) => (Format::Crc64, 4096),
            Self::Format(Format::T10) => (Format::T10, block_bytes),
        };
        if block_bytes > interval_bytes {
            return None;
        }
        Geometry::new(Mode::Wire, format, interval_bytes)
    }

    /// Returns whether a device with `geometry`, which was opened for a client that asked for
    /// `opened_for`, is what is asked for: the server would say the same again.
    pub fn is_answered(
        wanted: Option<Self>,
        opened_for: Option<Self>,
        geometry: Option<Geometry>,
    ) -> bool {
        match (wanted, geometry) {
            (None, None) => true,
            (Some(wanted), Some(geometry)) => wanted.accepts(geometry.format()),
            // It had nothing that was wanted.
            (Some(_), None) => wanted == opened_for,
            (None, Some(_)) => false,
        }
    }

    const fn accepts(self, format: Format) -> bool {
        match self {
            Self::Any => true,
            Self::Format(wanted) => wanted.to_wire() == format.to_wire(),
        }
    }
}

/// The user's choice for a mapped device, `pi=` of `map_device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Choice {
    /// No protection information.
    #[default]
    Off,
    /// Any format that the server has; without one the device is mapped without tuples.
    Auto,
    /// Any format; without one the device is not mapped.
    Require,
    /// Exactly this format; without it the device is not mapped.
    Format(Format),
}

/// The word is no choice (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChoice;

/// The reason why a client does not use a device as the server has opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The server has no protection information for it, or not the one that is wanted.
    Missing,
    /// The server gave another geometry than the client asked for, which no server of this project
    /// does.
    Another(Geometry),
}

impl Refused {
    /// Returns the error of the write to `map_device`.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Missing => Errno::EOPNOTSUPP,
            Self::Another(_) => Errno::EINVAL,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "the server has not this protection information for it: map it with pi=auto or \
                 pi=off",
            ),
            Self::Another(geometry) => write!(f, "the server has chosen {geometry} unasked"),
        }
    }
}

impl Choice {
    /// Parses the word of `pi=`.
    pub fn parse(word: &[u8]) -> Result<Self, UnknownChoice> {
        match word {
            b"off" => Ok(Self::Off),
            b"auto" => Ok(Self::Auto),
            b"require" => Ok(Self::Require),
            b"crc64" => Ok(Self::Format(Format::Crc64)),
            b"t10" => Ok(Self::Format(Format::T10)),
            _ => Err(UnknownChoice),
        }
    }

    /// Returns what to ask the server for.
    pub const fn wanted(self) -> Option<Wanted> {
        match self {
            Self::Off => None,
            Self::Auto | Self::Require => Some(Wanted::Any),
            Self::Format(format) => Some(Wanted::Format(format)),
        }
    }

    /// Checks the server's answer.
    pub const fn check(self, answer: Option<Geometry>) -> Result<(), Refused> {
        match (self.wanted(), answer) {
            (None, None) => Ok(()),
            (None, Some(geometry)) => Err(Refused::Another(geometry)),
            (Some(wanted), Some(geometry)) if wanted.accepts(geometry.format()) => Ok(()),
            (Some(_), Some(geometry)) => Err(Refused::Another(geometry)),
            (Some(_), None) if matches!(self, Self::Auto) => Ok(()),
            (Some(_), None) => Err(Refused::Missing),
        }
    }
}
