// SPDX-License-Identifier: GPL-2.0

//! The limits of a device's disk, and how they follow those of the server's device.
//!
//! A device may change during an outage. Its limits are read again when the device is opened again,
//! but the block layer changes the limits of a disk only when none of its requests is in flight,
//! and those may wait for a path: so a work item changes them later.

use block_ext::{
    integrity::{
        Integrity,
        TupleKind, //
    },
    limits::{
        DiscardLimits,
        Limits, //
    }, //
};
use kernel::prelude::*;
use rtrs_client::Session;

use crate::proto::{
    device::Device as Remote,
    io_state::Flushes,
    memory,
    pi::{
        Format,
        Geometry,
        Mode, //
    },
    SECTOR_SIZE, //
};

/// Pieces of a request start and end at pages: a memory region can hold no others.
const PAGE_MASK: u32 = 4096 - 1;

/// Returns the limits of what one request carries.
pub(super) fn of_transfers(rtrs: &Session) -> Limits {
    Limits {
        virt_boundary_mask: PAGE_MASK,
        dma_alignment_mask: memory::dma_alignment_mask(rtrs.max_segments()),
        io_opt_bytes: rtrs.max_io_size(),
        ..Limits::new(rtrs.max_io_size() / SECTOR_SIZE, rtrs.max_segments())
    }
}

/// Returns the limits of a disk for `remote`. The server splits transfers that are longer than its
/// device takes.
pub(super) fn of_disk(rtrs: &Session, remote: &Remote) -> Limits {
    let transfers = of_transfers(rtrs);
    // A logical block is at least an interval.
    let interval_bytes = remote.pi.map_or(0, Geometry::interval_bytes);
    let logical_block_bytes = u32::from(remote.logical_block_size).max(interval_bytes);
    let size_max = remote.pi.map_or(u32::MAX, Geometry::size_max);
    Limits {
        logical_block_bytes,
        physical_block_bytes: u32::from(remote.physical_block_size).max(logical_block_bytes),
        max_hw_sectors: transfers.max_hw_sectors.min(size_max / SECTOR_SIZE),
        integrity: remote.pi.map(integrity),
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
        ..transfers
    }
}

/// Returns the protection information of a disk.
fn integrity(geometry: Geometry) -> Integrity {
    Integrity {
        kind: match geometry.format() {
            Format::Crc64 => TupleKind::Crc64,
            Format::T10 => TupleKind::T10,
        },
        interval_bytes: geometry.interval_bytes(),
        is_stored: matches!(geometry.mode(), Mode::Pass | Mode::Store),
    }
}

/// The limits that a disk has, and those that it should have.
pub(super) struct LimitUpdate {
    has: Limits,
    should_have: Limits,
    flushes: Flushes,
}

impl LimitUpdate {
    /// Returns the state of a disk that is created with these limits.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            has: limits,
            should_have: limits,
            flushes: Flushes::new(limits.write_cache),
        }
    }

    /// Stores the current limits of the server's device.
    ///
    /// # Errors
    ///
    /// `EINVAL` if its blocks are larger than the disk's: the users of an open disk still use
    /// those.
    pub(super) fn follow(&mut self, mut limits: Limits) -> Result {
        if limits.logical_block_bytes > self.has.logical_block_bytes {
            return Err(EINVAL);
        }
        limits.logical_block_bytes = self.has.logical_block_bytes;
        limits.physical_block_bytes = limits.physical_block_bytes.max(limits.logical_block_bytes);
        self.flushes.follow(limits.write_cache);
        self.should_have = limits;
        Ok(())
    }

    /// Returns the bytes of a logical block of the disk.
    pub(super) fn block_bytes(&self) -> u32 {
        self.has.logical_block_bytes
    }

    /// Returns the limits that the disk should have, if they differ from those that it has.
    pub(super) fn due(&self) -> Option<Limits> {
        (self.has != self.should_have).then_some(self.should_have)
    }

    /// See [`Flushes::must_force`].
    pub(super) fn must_force(&self) -> bool {
        self.flushes.must_force(self.should_have.write_cache)
    }

    /// See [`Flushes::begins_to_force`].
    pub(super) fn begins_to_force(&mut self) -> bool {
        self.flushes.begins_to_force(self.should_have.write_cache)
    }

    /// Records that the disk has these limits now.
    pub(super) fn changed(&mut self, limits: Limits) {
        self.has = limits;
    }
}
