// SPDX-License-Identifier: GPL-2.0

//! Blocks at places, as a store of pages or a log has them.

use std::{
    collections::BTreeMap,
    rc::Rc, //
};

use rioc::proto::{
    index::{
        Changes,
        Source, //
    },
    slot::Stored,
    span::BLOCK_BYTES, //
};

/// The content of a block.
pub(crate) type Block = [u8; BLOCK_BYTES as usize];

/// All blocks that are stored, and what a log has kept: both change by [`Changes`] only.
#[derive(Clone, Default)]
pub(crate) struct Store {
    extents: BTreeMap<u64, Vec<Rc<Block>>>,
    next: u64,
    /// The slots that the operation has changed.
    pub(crate) changed: Vec<u32>,
}

impl Store {
    /// Stores bytes: whole blocks.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Stored {
        let blocks = bytes.chunks(BLOCK_BYTES as usize);
        let blocks: Vec<_> = blocks.map(|b| Rc::new(b.try_into().unwrap())).collect();
        assert!(!blocks.is_empty());
        self.next += 1;
        self.extents.insert(self.next, blocks);
        Stored {
            place: self.next,
            stamp: self.next as u32 ^ 0xffff,
        }
    }

    /// Takes back what was stored for an operation that was refused.
    pub(crate) fn take_back(&mut self, stored: Stored) {
        assert!(self.extents.remove(&stored.place).is_some());
    }

    /// Returns a block; of a place that was freed it fails.
    pub(crate) fn get(&self, source: &Source, skipped: u32) -> &Block {
        assert_eq!(source.stored.stamp, source.stored.place as u32 ^ 0xffff);
        &self.extents[&source.stored.place][usize::from(source.first) + skipped as usize]
    }

    /// Returns the places, with the blocks of each.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.extents
            .iter()
            .map(|(place, blocks)| (*place, blocks.len()))
    }
}

impl Changes for Store {
    fn changed(&mut self, slot: u32) {
        self.changed.push(slot);
    }

    fn freed(&mut self, stored: Stored, blocks: u8) {
        let freed = self.extents.remove(&stored.place).expect("freed twice");
        assert_eq!(freed.len(), usize::from(blocks));
    }
}
