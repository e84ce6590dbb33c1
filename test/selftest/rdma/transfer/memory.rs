// SPDX-License-Identifier: GPL-2.0

//! Memory in pieces, and what it holds.

use super::Cut;
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    scatterlist::BlockParts, //
};

/// Parts of blocks of pages, one after the other.
pub(super) struct Memory {
    parts: KVec<(Arc<PageBlock>, Cut)>,
}

impl Memory {
    /// Allocates a block for each cut.
    pub(super) fn new(cuts: &[Cut]) -> Result<Self> {
        let mut parts = KVec::with_capacity(cuts.len(), GFP_KERNEL)?;
        for cut in cuts {
            let bytes = cut.0.saturating_add(cut.1 as usize);
            let block = PageBlock::new(PageBlock::order_for(bytes))?;
            parts.push((Arc::new(block, GFP_KERNEL)?, *cut), GFP_KERNEL)?;
        }
        Ok(Self { parts })
    }

    /// Lends all of it.
    pub(super) fn lender(&self) -> Result<BlockParts> {
        let mut lender = BlockParts::new();
        for (block, (offset, len)) in &self.parts {
            lender.push(block.clone(), *offset, *len)?;
        }
        Ok(lender)
    }

    /// Gives it back, and returns whether this was the only reference to it.
    pub(super) fn release(self) -> bool {
        let mut parts = self.parts.into_iter();
        parts.all(|(block, _)| Arc::into_unique_or_drop(block).is_some())
    }

    /// Returns a copy of all bytes.
    pub(super) fn bytes(&self) -> Result<KVVec<u8>> {
        let mut bytes = KVVec::new();
        for (block, (offset, len)) in &self.parts {
            let from = bytes.len();
            let len = *len as usize;
            bytes.extend_with(len, 0, GFP_KERNEL)?;
            let some = bytes.get_mut(from..).ok_or(EINVAL)?;
            block.copy_out(*offset, some)?;
        }
        Ok(bytes)
    }

    /// Writes bytes that no other turn has at the same places.
    pub(super) fn fill(&self, turn: u32) -> Result {
        let mut index = 0u32;
        for (block, (offset, len)) in &self.parts {
            let mut bytes = KVVec::with_capacity(*len as usize, GFP_KERNEL)?;
            for _ in 0..*len {
                let mixed = index.wrapping_mul(31).wrapping_add(index >> 8);
                // CAST: The low byte.
                let byte = mixed.wrapping_add(turn.wrapping_mul(101)) as u8;
                bytes.push(byte, GFP_KERNEL)?;
                index = index.wrapping_add(1);
            }
            block.copy_in(*offset, &bytes)?;
        }
        Ok(())
    }
}
