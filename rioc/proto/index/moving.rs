// SPDX-License-Identifier: GPL-2.0

//! Extents that are moved, as a log has to: what is still used of a segment is stored again.

use super::{
    super::slot::{
        Extent,
        Memory,
        Slot,
        Stored,
        NONE, //
    },
    Changes,
    Index,
    STEP_RANGES, //
};

/// Some blocks of an extent: a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks(u32);

impl Blocks {
    /// Returns `count` blocks from `first` on.
    const fn of(first: u8, count: u8) -> Self {
        Self(below(count) << (first as u32 & 31))
    }

    /// Whether a block is one of them.
    pub const fn contains(self, block: u8) -> bool {
        self.0 >> (block as u32 & 31) & 1 != 0
    }

    /// Returns how many there are.
    pub const fn count(self) -> u8 {
        // CAST: At most 32.
        self.0.count_ones() as u8
    }

    /// Returns how many there are before a block.
    const fn before(self, block: u8) -> u8 {
        Self(self.0 & below(block)).count()
    }
}

/// Returns the bits below one.
const fn below(bit: u8) -> u32 {
    match 1u32.checked_shl(bit as u32) {
        Some(bit) => bit.wrapping_sub(1),
        None => u32::MAX,
    }
}

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Returns the blocks of an extent that ranges have; all of them if it has very many ranges.
    /// `None` if it cannot be moved now: it is gone, or a read uses it.
    pub fn movable(&self, number: u32) -> Option<(Stored, Blocks)> {
        let extent = self.slots.extent(number);
        let extent = extent.filter(|extent| extent.references > 0 && extent.pins == 0)?;
        Some((extent.stored, self.used_blocks(extent)))
    }

    fn used_blocks(&self, extent: &Extent) -> Blocks {
        if extent.references > STEP_RANGES {
            return Blocks::of(0, extent.blocks);
        }
        let (mut used, mut next) = (Blocks(0), extent.ranges);
        while let Some(range) = self.slots.range(next) {
            used.0 |= Blocks::of(range.first, range.blocks).0;
            next = range.next;
        }
        used
    }

    /// The blocks of an extent that [`Self::movable`] has told are elsewhere now, and the others
    /// nowhere. Returns whether it is so: the extent may be gone meanwhile, or be used by a read.
    pub fn relocate(
        &mut self,
        number: u32,
        (from, blocks): (Stored, Blocks),
        to: Stored,
        changes: &mut impl Changes,
    ) -> bool {
        let extent = self.slots.extent(number).copied();
        let is_movable = |e: &Extent| e.stored == from && e.references > 0 && e.pins == 0;
        let Some(extent) = extent.filter(is_movable) else {
            return false;
        };
        // What is shared meanwhile refers to blocks that were used.
        if self.used_blocks(&extent).0 & !blocks.0 != 0 {
            return false;
        }
        if let Some(extent) = self.slots.extent_mut(number) {
            extent.stored = to;
            extent.blocks = blocks.count();
        }
        changes.changed(number);
        let fewer = extent.blocks.saturating_sub(blocks.count());
        self.usage.blocks = self.usage.blocks.saturating_sub(fewer.into());
        let mut next = if fewer > 0 { extent.ranges } else { NONE };
        while let Some(range) = self.slots.range_mut(next) {
            let first = blocks.before(range.first);
            if range.first != first {
                range.first = first;
                changes.changed(next);
            }
            next = range.next;
        }
        changes.freed(from, extent.blocks);
        true
    }
}
