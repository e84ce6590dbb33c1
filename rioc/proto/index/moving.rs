// SPDX-License-Identifier: GPL-2.0

//! Extents that are moved, as a log has to: what is still used of a segment is stored again.

use super::{
    super::slot::{
        Blocks,
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

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Returns the blocks of an extent that are moved, which are all of them if it has very many
    /// ranges: else each of these would change. `None` if no range has it. A read that uses
    /// it goes on with the place before: its user does not use that again.
    pub fn movable(&self, number: u32) -> Option<(Stored, Blocks)> {
        let extent = self.slots.extent(number);
        let extent = extent.filter(|extent| extent.references > 0)?;
        let is_shared = extent.references > STEP_RANGES;
        let used = if is_shared {
            Blocks::of(0, extent.blocks)
        } else {
            self.used_blocks(extent)
        };
        Some((extent.stored, used))
    }

    /// Returns the blocks of an extent that ranges have, if it does not have very many of these.
    pub(super) fn used_blocks(&self, extent: &Extent) -> Blocks {
        if extent.references > STEP_RANGES {
            return extent.used;
        }
        let (mut used, mut next) = (Blocks::default(), extent.ranges);
        while let Some(range) = self.slots.range(next) {
            used = used.or(Blocks::of(range.first, range.blocks));
            next = range.next;
        }
        used
    }

    /// Gives back what no range and no read uses of an extent any more.
    pub(super) fn settle(&mut self, number: u32, changes: &mut impl Changes) {
        let extent = self.slots.extent(number).copied();
        let Some(extent) = extent.filter(|extent| extent.pins == 0) else {
            return;
        };
        let used = self.used_blocks(&extent);
        if let Some(extent) = self.slots.extent_mut(number) {
            extent.used = used;
        }
        if extent.references == 0 {
            self.slots.give_back(number);
            self.usage.extents = self.usage.extents.saturating_sub(1);
        }
        let unused = extent.used.minus(used);
        if !unused.is_empty() {
            self.usage.blocks = self.usage.blocks.saturating_sub(unused.count().into());
            changes.freed(extent.stored, unused);
        }
    }

    /// The blocks of an extent that [`Self::movable`] has told are elsewhere now, and the others
    /// nowhere. Returns whether it is so: the extent may be gone meanwhile.
    pub fn relocate(
        &mut self,
        number: u32,
        (from, blocks): (Stored, Blocks),
        to: Stored,
        changes: &mut impl Changes,
    ) -> bool {
        let extent = self.slots.extent(number).copied();
        let is_movable = |e: &Extent| e.stored == from && e.references > 0;
        let Some(extent) = extent.filter(is_movable) else {
            return false;
        };
        // What is shared meanwhile refers to blocks that were used.
        if !self.used_blocks(&extent).minus(blocks).is_empty() {
            return false;
        }
        if let Some(extent) = self.slots.extent_mut(number) {
            extent.stored = to;
            extent.blocks = blocks.count();
            extent.used = Blocks::of(0, blocks.count());
        }
        changes.changed(number);
        let others = self.usage.blocks.saturating_sub(extent.used.count().into());
        self.usage.blocks = others.saturating_add(blocks.count().into());
        let mut next = if blocks.count() < extent.blocks {
            extent.ranges
        } else {
            NONE
        };
        while let Some(range) = self.slots.range_mut(next) {
            let first = blocks.before(range.first);
            if range.first != first {
                range.first = first;
                changes.changed(next);
            }
            next = range.next;
        }
        changes.freed(from, extent.used);
        true
    }
}
