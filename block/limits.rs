// SPDX-License-Identifier: GPL-2.0

//! What a disk can do: the limits of its queue.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h), `struct queue_limits`

use super::SECTOR_BYTES;
use block_ext_sys as raw;
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Largest logical block size of the block layer, `BLK_MAX_BLOCK_SIZE`.
const BLOCK_BYTES_MAX: u32 = 65536;

/// Sectors of a page; every disk must take that much at once.
const PAGE_SECTORS: u32 = PAGE_SIZE as u32 / SECTOR_BYTES;

/// The features that [`Limits`] decides.
const FEATURES: bindings::blk_features_t = raw::BLOCK_EXT_BLK_FEAT_WRITE_CACHE
    | raw::BLOCK_EXT_BLK_FEAT_FUA
    | bindings::BLK_FEAT_ROTATIONAL;

/// Discard support of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardLimits {
    /// Longest discard in sectors, 0 if the disk cannot discard.
    pub max_sectors: u32,
    /// Unit in which the disk frees space, in bytes; at least a physical block is used.
    pub granularity_bytes: u32,
    /// Offset of the first whole unit from the disk's start, in bytes.
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
    /// Smallest unit that can be addressed, in bytes: a power of two from 512 to 65536.
    pub logical_block_bytes: u32,
    /// Smallest unit written without read-modify-write, in bytes: a power of two; what is below
    /// the logical block size counts as that.
    pub physical_block_bytes: u32,
    /// Longest data transfer in sectors, at least a page and a logical block.
    pub max_hw_sectors: u32,
    /// Most pieces of memory in a request.
    pub max_segments: u16,
    /// Pieces end and begin at multiples of this mask + 1 except the first and the last (for
    /// scatter-gather hardware that maps pages); 0 for no such rule.
    pub virt_boundary_mask: u32,
    /// Preferred transfer size in bytes, 0 for none.
    pub io_opt_bytes: u32,
    /// Discard support.
    pub discard: DiscardLimits,
    /// Longest secure erase in sectors, 0 if not supported.
    pub max_secure_erase_sectors: u32,
    /// Longest write of zeroes in sectors, 0 if not supported.
    pub max_write_zeroes_sectors: u32,
    /// Whether the disk has a volatile cache: flushes are sent only if so.
    pub write_cache: bool,
    /// Whether the disk takes forced writes through that cache; without it the block layer sends
    /// a flush after the write instead.
    pub fua: bool,
    /// Whether the medium rotates.
    pub rotational: bool,
}

impl Limits {
    /// Limits of a disk with 512-byte blocks that can read and write and nothing else.
    pub const fn new(max_hw_sectors: u32, max_segments: u16) -> Self {
        Limits {
            logical_block_bytes: SECTOR_BYTES,
            physical_block_bytes: SECTOR_BYTES,
            max_hw_sectors,
            max_segments,
            virt_boundary_mask: 0,
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
        }
    }

    /// Scatter list entries that a request may need.
    ///
    /// The length is no bound, even with a boundary mask: the block layer adds up the pieces of the
    /// bios that it merges, however small they are.
    pub fn segments_needed(&self) -> u32 {
        u32::from(self.max_segments)
    }

    /// Checks everything that the block layer would answer with a kernel warning.
    ///
    /// `EINVAL` if a value is out of the range given at its field.
    pub fn check(&self) -> Result {
        let block = self.logical_block_bytes;
        let block_ok = block.is_power_of_two() && (SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&block);
        let physical = self.physical_block_bytes;
        let physical_ok = physical.is_power_of_two() || physical < block;
        let boundary = self.virt_boundary_mask;
        let boundary_ok = boundary == 0
            || boundary.checked_add(1).is_some_and(u32::is_power_of_two)
                && boundary >= SECTOR_BYTES - 1;
        if !block_ok
            || !physical_ok
            || !boundary_ok
            || self.max_segments == 0
            || self.max_hw_sectors < PAGE_SECTORS
            || self.max_hw_sectors < block / SECTOR_BYTES
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// The limits as the block layer takes them. `EINVAL` as in [`Self::check`].
    pub(crate) fn to_raw(self) -> Result<bindings::queue_limits> {
        self.check()?;
        let mut limits = pin_init::zeroed();
        self.apply(&mut limits);
        Ok(limits)
    }

    /// Puts these limits, which were [checked](Self::check), in place of those in `limits`; what
    /// an administrator has set there, and what is none of a driver's business, stays.
    pub(crate) fn apply(self, limits: &mut bindings::queue_limits) {
        limits.logical_block_size = self.logical_block_bytes;
        limits.physical_block_size = self.physical_block_bytes.max(self.logical_block_bytes);
        // The block layer raises it to what the block size asks for.
        limits.io_min = 0;
        limits.max_hw_sectors = self.max_hw_sectors;
        limits.max_segments = self.max_segments;
        limits.virt_boundary_mask = self.virt_boundary_mask as usize;
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
