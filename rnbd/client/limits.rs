// SPDX-License-Identifier: GPL-2.0

//! The limits of a device's disk, and how they follow those of the server's device.
//!
//! While its server was away a device may have changed. What the disk may be asked for is read anew
//! when the device is opened again, but a disk takes other limits only when none of its requests is
//! under way, and those may be waiting for a path: so they are changed later, by work of its own.

use block_ext::limits::{
    DiscardLimits,
    Limits, //
};
use kernel::prelude::*;
use rtrs_client::Session;

use crate::proto::{
    device::Device as Remote,
    SECTOR_SIZE, //
};

/// Pieces of a request start and end at pages: a memory region can hold no others.
const PAGE_MASK: u32 = 4096 - 1;

/// Limits of what one request carries.
pub(super) fn of_transfers(rtrs: &Session) -> Limits {
    Limits {
        virt_boundary_mask: PAGE_MASK,
        io_opt_bytes: rtrs.max_io_size(),
        ..Limits::new(rtrs.max_io_size() / SECTOR_SIZE, rtrs.max_segments())
    }
}

/// Limits of a disk for `remote`. Longer transfers than the server's device takes are split there.
pub(super) fn of_disk(rtrs: &Session, remote: &Remote) -> Limits {
    Limits {
        logical_block_bytes: u32::from(remote.logical_block_size),
        physical_block_bytes: u32::from(remote.physical_block_size),
        discard: DiscardLimits {
            max_sectors: remote.max_discard_sectors,
            granularity_bytes: remote.discard_granularity,
            alignment_bytes: remote.discard_alignment,
        },
        max_secure_erase_sectors: if remote.secure_discard {
            remote.max_discard_sectors
        } else {
            0
        },
        max_write_zeroes_sectors: remote.max_write_zeroes_sectors,
        write_cache: remote.writeback,
        fua: remote.fua,
        ..of_transfers(rtrs)
    }
}

/// The limits that a disk has, and those that it should have.
pub(super) struct LimitUpdate {
    has: Limits,
    should_have: Limits,
}

impl LimitUpdate {
    /// Of a disk that is made with these limits.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            has: limits,
            should_have: limits,
        }
    }

    /// Notes what the server's device is like now.
    ///
    /// # Errors
    ///
    /// `EINVAL` if its blocks are larger than the disk's: whoever has the disk open goes on with
    /// those.
    pub(super) fn follow(&mut self, mut limits: Limits) -> Result {
        if limits.logical_block_bytes > self.has.logical_block_bytes {
            return Err(EINVAL);
        }
        limits.logical_block_bytes = self.has.logical_block_bytes;
        limits.physical_block_bytes = limits.physical_block_bytes.max(limits.logical_block_bytes);
        self.should_have = limits;
        Ok(())
    }

    /// Bytes of a logical block of the disk.
    pub(super) fn block_bytes(&self) -> u32 {
        self.has.logical_block_bytes
    }

    /// The limits that the disk should have, if those are others.
    pub(super) fn due(&self) -> Option<Limits> {
        (self.has != self.should_have).then_some(self.should_have)
    }

    /// Whether the block layer believes that what was written is durable, and it is not: it sends
    /// no flushes.
    pub(super) fn lacks_flushes(&self) -> bool {
        self.should_have.write_cache && !self.has.write_cache
    }

    /// Notes that the disk has these limits now.
    pub(super) fn changed(&mut self, limits: Limits) {
        self.has = limits;
    }
}
