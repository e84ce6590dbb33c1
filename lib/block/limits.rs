// SPDX-License-Identifier: GPL-2.0

//! The limits of a disk's queue.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h), `struct queue_limits`

use super::{
    integrity::Integrity,
    SECTOR_BYTES, //
};
use block_ext_sys as raw;
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*, //
};

/// The largest logical block size of the block layer, `BLK_MAX_BLOCK_SIZE`.
const BLOCK_BYTES_MAX: u32 = 65536;

/// The sectors of a page, the smallest limit for a transfer.
const PAGE_SECTORS: u32 = PAGE_SIZE as u32 / SECTOR_BYTES;

/// The features that [`Limits`] sets.
const FEATURES: bindings::blk_features_t = raw::BLOCK_EXT_BLK_FEAT_WRITE_CACHE
    | raw::BLOCK_EXT_BLK_FEAT_FUA
    | bindings::BLK_FEAT_ROTATIONAL;

/// Discard support of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardLimits {
    /// The maximum discard in sectors, 0 if not supported.
    pub max_sectors: u32,
    /// The unit in which the disk frees space, in bytes; at least a physical block is used.
    pub granularity_bytes: u32,
    /// The offset of the first whole unit from the start of the disk, in bytes.
    pub alignment_bytes: u32,
}

/// The limits of a disk.
///
/// # Examples
///
/// ```ignore
/// let limits = Limits {
///     logical_block_bytes: 4096,
///     physical_block_bytes: 4096,
///     write_cache: true,
///     fua: true,
///     ..Limits::new(248, 32)
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The smallest addressable unit in bytes: a power of two from 512 to 65536.
    pub logical_block_bytes: u32,
    /// The smallest unit written without read-modify-write, in bytes: a power of two; a value below
    /// the logical block size is raised to it.
    pub physical_block_bytes: u32,
    /// The maximum data transfer in sectors, at least a page and a logical block.
    pub max_hw_sectors: u32,
    /// The maximum number of segments of a request.
    pub max_segments: u16,
    /// Segments begin and end at multiples of this mask + 1, except the start of the first and the
    /// end of the last (for hardware that maps pages); 0 for no such rule.
    pub virt_boundary_mask: u32,
    /// The memory of each piece of a user begins and ends at multiples of this mask + 1: a power of
    /// two, from 2 to a page. Direct IO with other memory is refused with `EINVAL`.
    pub dma_alignment_mask: u32,
    /// The preferred transfer size in bytes, 0 for none.
    pub io_opt_bytes: u32,
    /// Discard support.
    pub discard: DiscardLimits,
    /// The maximum secure erase in sectors, 0 if not supported.
    pub max_secure_erase_sectors: u32,
    /// The maximum write of zeroes in sectors, 0 if not supported.
    pub max_write_zeroes_sectors: u32,
    /// Whether the disk has a volatile cache; otherwise the block layer sends no flushes.
    pub write_cache: bool,
    /// Whether the disk supports writes through that cache (FUA); otherwise the block layer sends a
    /// flush after the write.
    pub fua: bool,
    /// Whether the medium rotates.
    pub rotational: bool,
    /// The protection information of the disk's IO. It stays what it was when the disk was made.
    pub integrity: Option<Integrity>,
}

impl Limits {
    /// Returns the limits of a disk with 512-byte blocks that supports reads and writes only.
    pub const fn new(max_hw_sectors: u32, max_segments: u16) -> Self {
        Limits {
            logical_block_bytes: SECTOR_BYTES,
            physical_block_bytes: SECTOR_BYTES,
            max_hw_sectors,
            max_segments,
            virt_boundary_mask: 0,
            dma_alignment_mask: SECTOR_BYTES - 1,
            io_opt_bytes: 0,
            discard: DiscardLimits {
                max_sectors: 0,
                granularity_bytes: 0,
                alignment_bytes: 0,
            },
            max_secure_erase_sectors: 0,
            max_write_zeroes_sectors: 0,
            write_cache: false,
            fua: false,
            rotational: false,
            integrity: None,
        }
    }

    /// Returns the number of scatter list entries that a request may need.
    ///
    /// The length is not a bound, even with a boundary mask, as the block layer adds up the
    /// segments of merged bios of any size.
    pub fn segments_needed(&self) -> u32 {
        u32::from(self.max_segments)
    }

    /// Checks the values for which the block layer prints a kernel warning.
    ///
    /// Returns `EINVAL` if a value is out of the range given at its field.
    pub fn check(&self) -> Result {
        let block = self.logical_block_bytes;
        let block_ok = block.is_power_of_two() && (SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&block);
        let physical = self.physical_block_bytes;
        let physical_ok = physical.is_power_of_two() || physical < block;
        let boundary = self.virt_boundary_mask;
        let boundary_ok = boundary == 0
            || boundary.checked_add(1).is_some_and(u32::is_power_of_two)
                && boundary >= SECTOR_BYTES - 1;
        let unit = self.dma_alignment_mask.checked_add(1);
        // CAST: The size of a page. The block layer takes a mask of 0 for its own one.
        let alignment_ok = unit
            .is_some_and(|unit| unit.is_power_of_two() && (2..=PAGE_SIZE as u32).contains(&unit));
        if !block_ok
            || !physical_ok
            || !boundary_ok
            || !alignment_ok
            || self.max_segments == 0
            || self.max_hw_sectors < PAGE_SECTORS
            || self.max_hw_sectors < block / SECTOR_BYTES
            || self.integrity.is_some_and(|i| !i.fits(block))
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Converts the limits for the block layer. Returns `EINVAL` as [`Self::check`].
    pub(crate) fn to_raw(self) -> Result<bindings::queue_limits> {
        self.check()?;
        let mut limits = pin_init::zeroed();
        self.apply(&mut limits);
        if let Some(integrity) = self.integrity {
            limits.integrity = integrity.to_raw();
            limits.max_integrity_segments = self.max_segments;
        }
        Ok(limits)
    }

    /// Sets these limits, which were [checked](Self::check), in `limits`; keeps the values of the
    /// administrator and those that a driver does not set.
    pub(crate) fn apply(self, limits: &mut bindings::queue_limits) {
        limits.logical_block_size = self.logical_block_bytes;
        limits.physical_block_size = self.physical_block_bytes.max(self.logical_block_bytes);
        // The block layer raises the value to the block size.
        limits.io_min = 0;
        limits.max_hw_sectors = self.max_hw_sectors;
        limits.max_segments = self.max_segments;
        limits.virt_boundary_mask = self.virt_boundary_mask as usize;
        limits.dma_alignment = self.dma_alignment_mask;
        limits.io_opt = self.io_opt_bytes;
        limits.max_hw_discard_sectors = self.discard.max_sectors;
        limits.discard_granularity = self.discard.granularity_bytes;
        limits.discard_alignment = self.discard.alignment_bytes;
        limits.max_secure_erase_sectors = self.max_secure_erase_sectors;
        limits.max_write_zeroes_sectors = self.max_write_zeroes_sectors;
        limits.features = limits.features & !FEATURES | self.features();
    }

    fn features(&self) -> bindings::blk_features_t {
        let mut features = 0;
        if self.write_cache {
            features |= raw::BLOCK_EXT_BLK_FEAT_WRITE_CACHE;
            // The block layer ignores FUA without a cache.
            if self.fua {
                features |= raw::BLOCK_EXT_BLK_FEAT_FUA;
            }
        }
        if self.rotational {
            features |= bindings::BLK_FEAT_ROTATIONAL;
        }
        features
    }
}
