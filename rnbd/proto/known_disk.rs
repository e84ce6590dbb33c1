// SPDX-License-Identifier: GPL-2.0

//! The rule by which a client tells whether the disk that a server has opened under a name may be
//! the one that it has mapped by it.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    device::Device,
    identity::Identity, //
};

/// Identity and size of a mapped disk, as a client knows them; nothing before the first opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownDisk {
    /// The identity, if the server of the last opening has told one.
    pub identity: Option<Identity>,
    /// The capacity that its users know, in sectors of 512 bytes.
    pub sectors: u64,
}

/// The reason for which a disk is not the one that is mapped, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The server tells another disk.
    Another {
        /// The disk that is mapped.
        before: Identity,
        /// The one that the server has.
        now: Identity,
    },
    /// The server tells no identity, that of before did.
    Untold(Identity),
    /// The server's disk is smaller.
    Smaller {
        /// The capacity that users of the disk know, in sectors.
        before: u64,
        /// The capacity at the server, in sectors.
        now: u64,
    },
}

impl Difference {
    /// Returns the error of the opening.
    pub const fn errno(self) -> Errno {
        Errno::ESTALE
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Another { before, now } => write!(
                f,
                "the server has another disk under this name, {now} instead of {before}"
            ),
            Self::Untold(before) => write!(
                f,
                "the server does not tell which disk it has under this name, as C servers, and \
                 older releases, which do not know sidecars; it was {before}"
            ),
            Self::Smaller { before, now } => write!(
                f,
                "the server has a smaller disk under this name, {now} sectors instead of {before}"
            ),
        }
    }
}

impl KnownDisk {
    /// Returns what is known of a disk that was opened.
    pub const fn of(device: &Device) -> Self {
        Self {
            identity: device.identity,
            sectors: device.capacity_sectors(),
        }
    }

    /// Compares the disk with the one that a server has opened: the file system that is mounted
    /// would write over the data of another one. A server that has never told an identity excludes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns why it must not go on with that one, unless the user says so.
    pub fn compare(&self, opened: &Self) -> Result<(), Difference> {
        match (self.identity, opened.identity) {
            (Some(before), Some(now)) if before != now => {
                return Err(Difference::Another { before, now });
            }
            (Some(before), None) => return Err(Difference::Untold(before)),
            _ => {}
        }
        let (before, now) = (self.sectors, opened.sectors);
        if now < before {
            return Err(Difference::Smaller { before, now });
        }
        Ok(())
    }
}
