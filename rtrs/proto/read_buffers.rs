// SPDX-License-Identifier: GPL-2.0

//! The buffers of a client's small reads: memory that stays registered, from which the data are
//! copied (decision 0031).

use core::num::NonZeroU32;

use super::{
    device::PAGE_SIZE_MIN,
    wire::TAIL_LEN_MAX, //
};

/// The default of `read_copy_max`: the bytes of the longest read that is copied.
pub const READ_COPY_MAX_DEFAULT: u32 = 4096;

/// The upper end of its range. 0 is its lower end: none is copied.
pub const READ_COPY_MAX_MAX: u32 = 64 << 10;

/// Buffers begin at multiples of a cache line.
const ALIGN: u32 = 64;

/// Blocks have at least as many bytes: the largest order of pages that is not costly to find.
const BLOCK_BYTES_MIN: u32 = 32 << 10;

/// The layout of the buffers of a path: several in each block of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBuffers {
    len: u32,
}

impl ReadBuffers {
    /// Returns the layout for reads of up to `read_copy_max` bytes, besides which a buffer has room
    /// for their protection information; `None` if no read is copied.
    pub const fn new(read_copy_max: u32) -> Option<Self> {
        if read_copy_max == 0 || read_copy_max > READ_COPY_MAX_MAX {
            return None;
        }
        let len = (read_copy_max + TAIL_LEN_MAX).next_multiple_of(ALIGN);
        Some(Self { len })
    }

    /// Returns the bytes of a buffer.
    pub const fn buffer_len(self) -> u32 {
        self.len
    }

    /// Returns the bytes of a block, a power of two.
    pub const fn block_len(self) -> u32 {
        match self.len.checked_next_power_of_two() {
            Some(len) if len > BLOCK_BYTES_MIN => len,
            _ => BLOCK_BYTES_MIN,
        }
    }

    /// Returns the number of buffers in a block, at least 1.
    pub const fn per_block(self) -> u32 {
        match self.block_len().checked_div(self.len) {
            Some(count) => count,
            None => 1,
        }
    }

    /// Returns the offset of a buffer, from 0, in its block; `None` if it is in a later one.
    pub const fn offset(self, index: u32) -> Option<u32> {
        if index < self.per_block() {
            // Less than a block.
            Some(index.wrapping_mul(self.len))
        } else {
            None
        }
    }

    /// Returns the number of blocks for this many requests.
    pub const fn blocks(self, queue_depth: u16) -> u32 {
        // Rounds up: each block has at least one buffer.
        let last = (queue_depth as u32).saturating_sub(1);
        match last.checked_div(self.per_block()) {
            Some(full) => full.saturating_add(1),
            None => 1,
        }
    }

    /// Returns the number of blocks in a region of a device whose regions have at most `pages_max`
    /// pages; `None` if they have no room for one: no read is copied then.
    pub const fn blocks_per_region(self, pages_max: u32) -> Option<NonZeroU32> {
        match pages_max.checked_div(self.block_len() / PAGE_SIZE_MIN) {
            Some(count) => NonZeroU32::new(count),
            None => None,
        }
    }

    /// Returns the bytes of the blocks for this many requests.
    pub const fn bytes(self, queue_depth: u16) -> u64 {
        (self.blocks(queue_depth) as u64).saturating_mul(self.block_len() as u64)
    }
}
