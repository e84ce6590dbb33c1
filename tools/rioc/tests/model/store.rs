// SPDX-License-Identifier: GPL-2.0

//! Blocks at places, as a store of pages or a log has them.

use std::{
    collections::BTreeMap,
    rc::Rc, //
};

use rioc::proto::{
    entry::Entry,
    index::{
        Changes,
        Source, //
    },
    slot::{
        Blocks,
        Stored, //
    },
    span::{
        ObjectId,
        BLOCK_BYTES, //
    }, //
};

/// The bytes of all objects.
pub(crate) type Objects = BTreeMap<ObjectId, Vec<u8>>;

/// The content of a block.
pub(crate) type Block = [u8; BLOCK_BYTES as usize];

/// A store of blocks, which is told of changes.
pub(crate) trait Storage: Changes {
    /// Stores bytes: whole blocks.
    fn put(&mut self, bytes: &[u8]) -> Stored;

    /// Takes back what was stored for an operation that was refused.
    fn take_back(&mut self, stored: Stored);

    /// Returns a block; of a place that was freed it fails.
    fn get(&self, source: &Source, skipped: u32) -> Block;

    /// Returns the places, with how many blocks of each are used.
    fn places(&self) -> Vec<(u64, usize)>;

    /// Returns the slots that have changed since it was asked last.
    fn take_changed(&mut self) -> Vec<u32>;

    /// An operation, or a step of one, is complete: these are the objects, and the entries.
    fn settle(&mut self, _objects: &Objects, _entry: &dyn Fn(u32) -> Entry) {}
}

/// Blocks in memory.
#[derive(Clone, Default)]
pub(crate) struct Store {
    extents: BTreeMap<u64, Vec<Option<Rc<Block>>>>,
    next: u64,
    /// The slots that the operation has changed.
    changed: Vec<u32>,
}

impl Storage for Store {
    fn put(&mut self, bytes: &[u8]) -> Stored {
        let blocks = bytes.chunks(BLOCK_BYTES as usize);
        let blocks: Vec<_> = blocks
            .map(|b| Some(Rc::new(b.try_into().unwrap())))
            .collect();
        assert!(!blocks.is_empty());
        self.next += 1;
        self.extents.insert(self.next, blocks);
        Stored {
            place: self.next,
            stamp: self.next as u32 ^ 0xffff,
        }
    }

    fn take_back(&mut self, stored: Stored) {
        assert!(self.extents.remove(&stored.place).is_some());
    }

    fn get(&self, source: &Source, skipped: u32) -> Block {
        assert_eq!(source.stored.stamp, source.stored.place as u32 ^ 0xffff);
        let extent = &self.extents[&source.stored.place];
        let block = &extent[usize::from(source.first) + skipped as usize];
        **block.as_ref().expect("freed")
    }

    fn places(&self) -> Vec<(u64, usize)> {
        let each = self.extents.iter();
        each.map(|(place, blocks)| (*place, blocks.iter().flatten().count()))
            .collect()
    }

    fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }
}

impl Store {
    /// A crash leaves these extents.
    pub(crate) fn keep(&mut self, places: &[u64]) {
        self.extents.retain(|place, _| places.contains(place));
    }
}

impl Changes for Store {
    fn changed(&mut self, slot: u32) {
        self.changed.push(slot);
    }

    fn freed(&mut self, stored: Stored, blocks: Blocks) {
        let extent = self.extents.get_mut(&stored.place).expect("freed twice");
        assert!(!blocks.is_empty());
        for (block, there) in (0..).zip(extent.iter_mut()) {
            if blocks.contains(block) {
                there.take().expect("freed twice");
            }
        }
        if extent.iter().all(Option::is_none) {
            self.extents.remove(&stored.place);
        }
    }
}
