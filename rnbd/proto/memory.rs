// SPDX-License-Identifier: GPL-2.0

//! The memory that users of a disk may hand to it without a copy (`O_DIRECT`).

use super::SECTOR_SIZE;

/// Pieces that a logical block has besides one: at most 32 KiB, the largest that the wire can name,
/// in pages of their own.
const BLOCK_PAGES_MAX: u16 = 8;

/// The alignment of NVMe, in bytes. RDMA itself needs none.
const WORDS: u32 = 4;

/// Returns the alignment of the pieces of memory of a request that has up to `max_segments` pieces,
/// as a mask of addresses and lengths in bytes.
///
/// A block that begins anywhere in a page lies in one page more than its size has, and no request
/// has less than a block: an adapter that takes fewer pieces than that gets whole sectors.
pub const fn dma_alignment_mask(max_segments: u16) -> u32 {
    let unit_bytes = match max_segments {
        0..=BLOCK_PAGES_MAX => SECTOR_SIZE,
        _ => WORDS,
    };
    unit_bytes.wrapping_sub(1)
}
