// SPDX-License-Identifier: GPL-2.0

//! The ranges of an object: blocks are taken from it, and given to it.

use core::ops::Range as Blocks;

use super::{
    super::{
        slot::{
            Blocks as Taken,
            Extent,
            InFile,
            Memory,
            Range,
            Slot,
            Stored,
            NONE, //
        },
        tree, //
    },
    Changes,
    Index,
    Refused, //
};

/// The slots that storing some blocks takes at most: of the extent, of its range, and of the rest
/// of a range in whose middle they are.
pub(super) const STORE_SLOTS: u32 = 3;

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Returns the first range of an object that ends behind a block.
    pub(super) fn range_at(&self, object: u32, block: u32) -> Option<(u32, Range)> {
        let root = self.slots.object(object).map(|object| object.root)?;
        tree::find(&self.slots, root, block)
    }

    /// Returns the first range of an object that has some of the blocks.
    pub(super) fn range_in(&self, object: u32, blocks: Blocks<u32>) -> Option<(u32, Range)> {
        let found = self.range_at(object, blocks.start);
        found.filter(|(_, range)| range.block < blocks.end && !blocks.is_empty())
    }

    /// Adds a range, of blocks that the object does not have.
    pub(super) fn insert(
        &mut self,
        range: Range,
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        let number = self.slots.take(Slot::Range(range));
        let number = number.ok_or(Refused::NoSlots)?;
        let seed = self.seed();
        self.usage.ranges = self.usage.ranges.saturating_add(1);
        self.usage.add(range.in_file, range.blocks);
        self.refer(number, range.extent);
        let root = self.slots.object(range.object).map(|object| object.root);
        let root = tree::insert(&mut self.slots, root.unwrap_or(NONE), number, seed);
        if let Some(object) = self.slots.object_mut(range.object) {
            object.root = root;
            object.blocks = object.blocks.saturating_add(range.blocks.into());
        }
        changes.changed(number);
        Ok(())
    }

    /// A range refers to an extent: it is the first one of its list.
    pub(super) fn refer(&mut self, number: u32, extent: u32) {
        let Some(extent) = self.slots.extent_mut(extent) else {
            return;
        };
        extent.references = extent.references.saturating_add(1);
        let next = core::mem::replace(&mut extent.ranges, number);
        if let Some(range) = self.slots.range_mut(number) {
            range.previous = NONE;
            range.next = next;
        }
        if let Some(next) = self.slots.range_mut(next) {
            next.previous = number;
        }
    }

    /// Takes a range out of the list of its extent.
    fn unlink(&mut self, range: &Range) {
        if let Some(next) = self.slots.range_mut(range.next) {
            next.previous = range.previous;
        }
        match self.slots.range_mut(range.previous) {
            Some(previous) => previous.next = range.next,
            None => {
                if let Some(extent) = self.slots.extent_mut(range.extent) {
                    extent.ranges = range.next;
                }
            }
        }
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, number: u32, range: &Range, changes: &mut impl Changes) {
        let seed = self.seed();
        let root = self.slots.object(range.object).map(|object| object.root);
        let root = tree::remove(&mut self.slots, root.unwrap_or(NONE), number, seed);
        if let Some(object) = self.slots.object_mut(range.object) {
            object.root = root;
            object.blocks = object.blocks.saturating_sub(range.blocks.into());
        }
        self.unlink(range);
        self.slots.give_back(number);
        self.usage.ranges = self.usage.ranges.saturating_sub(1);
        self.usage.take(range.in_file, range.blocks);
        changes.changed(number);
        if let Some(extent) = self.slots.extent_mut(range.extent) {
            extent.references = extent.references.saturating_sub(1);
            if extent.references == 0 {
                changes.changed(range.extent);
            }
        }
        self.settle(range.extent, changes);
    }

    /// Changes the blocks of a range to some of those that it has.
    fn narrow(&mut self, number: u32, to: &Blocks<u32>, changes: &mut impl Changes) {
        let Some(range) = self.slots.range_mut(number) else {
            return;
        };
        // CAST: At most the blocks that the range had.
        let dropped = to.start.saturating_sub(range.block) as u8;
        let blocks = to.end.saturating_sub(to.start) as u8;
        let less = range.blocks.saturating_sub(blocks);
        range.block = to.start;
        range.first = range.first.saturating_add(dropped);
        range.blocks = blocks;
        let (object, extent) = (range.object, range.extent);
        self.usage.take(range.in_file, less);
        if let Some(object) = self.slots.object_mut(object) {
            object.blocks = object.blocks.saturating_sub(less.into());
        }
        changes.changed(number);
        self.settle(extent, changes);
    }

    /// Makes blocks of an object holes, and removes `removed_max` ranges at most; returns whether
    /// that is all. One slot is needed if the blocks are in the middle of a range.
    pub(super) fn cut(
        &mut self,
        object: u32,
        blocks: &Blocks<u32>,
        removed_max: u32,
        changes: &mut impl Changes,
    ) -> bool {
        let mut removed = 0;
        while let Some((number, range)) = self.range_in(object, blocks.clone()) {
            let is_before = range.block < blocks.start;
            let is_behind = range.end() > blocks.end;
            match (is_before, is_behind) {
                (true, true) => {
                    // CAST: Below the blocks of the range.
                    let skipped = blocks.end.saturating_sub(range.block) as u8;
                    let of_extent = (
                        range.first.saturating_add(skipped),
                        range.blocks.saturating_sub(skipped),
                    );
                    let mut rest = Range::new((object, blocks.end), range.extent, of_extent);
                    if range.in_file == InFile::Clean {
                        rest.in_file = InFile::Clean;
                    }
                    // The caller has seen that a slot is free. Until then the rest is used.
                    let _ = self.insert(rest, changes);
                    self.narrow(number, &(range.block..blocks.start), changes);
                    break;
                }
                (true, false) => self.narrow(number, &(range.block..blocks.start), changes),
                (false, true) => {
                    self.narrow(number, &(blocks.end..range.end()), changes);
                    break;
                }
                (false, false) if removed == removed_max => return false,
                (false, false) => {
                    self.remove(number, &range, changes);
                    removed = removed.saturating_add(1);
                }
            }
        }
        true
    }

    /// Puts blocks of an object, which are holes, into a new extent.
    pub(super) fn store(
        &mut self,
        (object, block): (u32, u32),
        (stored, blocks): (Stored, u8),
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        let extent = Extent {
            stored,
            references: 0,
            ranges: NONE,
            pins: 0,
            used: Taken::of(0, blocks),
            blocks,
            uses: 0,
        };
        let extent = self.slots.take(Slot::Extent(extent));
        let extent = extent.ok_or(Refused::NoSlots)?;
        self.usage.extents = self.usage.extents.saturating_add(1);
        self.usage.blocks = self.usage.blocks.saturating_add(blocks.into());
        changes.changed(extent);
        let range = Range::new((object, block), extent, (0, blocks));
        self.insert(range, changes)
    }

    /// Lets blocks of an object, which are holes, refer to those of a range from another place.
    pub(super) fn share(
        &mut self,
        (object, block): (u32, u32),
        range: &Range,
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        let shared = Range::new((object, block), range.extent, (range.first, range.blocks));
        self.insert(shared, changes)
    }
}
