// SPDX-License-Identifier: GPL-2.0

//! Rules that hold at any moment.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use rioc::proto::{
    slot::{
        Life,
        Slot,
        NONE, //
    },
    span::{
        ObjectId,
        Span,
        BLOCK_BYTES,
        IO_BYTES_MAX, //
    },
};

use super::{
    Memory,
    World, //
};
use crate::store::{
    Storage,
    Store, //
};

impl<S: Storage> World<S> {
    /// Compares all objects of an index with the arrays.
    pub(crate) fn compare(&self, index: &mut Memory) {
        let mut ends = Store::default();
        for (object, bytes) in &self.objects {
            let stat = index.stat(*object).unwrap();
            assert_eq!(stat.size, bytes.len() as u64);
            for (at, expected) in (0..).zip(bytes.chunks(IO_BYTES_MAX as usize)) {
                let span = Span::new(at * IO_BYTES_MAX, expected.len() as u64).unwrap();
                let reading = index.read(*object, &span).unwrap();
                assert!(self.content(&reading) == expected, "{object:?} at {at}");
                index.end_read(reading, &mut ends);
            }
        }
        assert!(ends.take_changed().is_empty());
        let (mut listed, mut cursor) = (BTreeSet::new(), Some(0));
        while let Some(at) = cursor {
            let mut names = [ObjectId::default(); 3];
            let (count, next) = index.list(at, &mut names);
            names[..count]
                .iter()
                .for_each(|name| assert!(listed.insert(*name)));
            cursor = next;
        }
        assert!(listed.iter().eq(self.objects.keys()));
    }

    /// Checks that counts are right, and that no block is lost.
    fn check_slots(&self, has_reads: bool) {
        let (slots, mut references) = (self.index.slots(), BTreeMap::new());
        let (mut free, mut blocks, mut places) = (0, 0, BTreeMap::new());
        let mut per_object = BTreeMap::<u32, u32>::new();
        for number in 0..slots.count() {
            match *slots.get(number).unwrap() {
                Slot::Free(_) => free += 1,
                Slot::Range(range) => {
                    *references.entry(range.extent).or_insert(0) += 1;
                    *per_object.entry(range.object).or_insert(0) += u32::from(range.blocks);
                    let object = slots.object(range.object).unwrap();
                    let end = object.size.div_ceil(BLOCK_BYTES) as u32;
                    assert!(
                        range.end() <= end || object.is_shrinking || object.life == Life::Doomed
                    );
                }
                _ => (),
            }
        }
        for number in 0..slots.count() {
            if let Some(extent) = slots.extent(number) {
                self.check_list(number);
                let known = references.get(&number).copied().unwrap_or(0);
                assert_eq!(extent.references, known);
                assert!(known > 0 || (has_reads && extent.pins > 0));
                assert!(extent.pins == 0 || has_reads);
                places.insert(extent.stored.place, usize::from(extent.used.count()));
                blocks += u64::from(extent.used.count());
            }
            if let Some(object) = slots.object(number) {
                let known = per_object.get(&number).copied().unwrap_or(0);
                assert_eq!(object.blocks, known);
            }
        }
        let usage = self.index.usage();
        assert_eq!(free, slots.free_count());
        assert_eq!(
            free + usage.objects + usage.ranges + usage.extents,
            slots.count()
        );
        assert_eq!(blocks, usage.blocks);
        assert!(places.into_iter().eq(self.store.places()));
    }

    /// Checks the list of the ranges of an extent.
    fn check_list(&self, number: u32) {
        let (slots, mut previous) = (self.index.slots(), NONE);
        let extent = slots.extent(number).unwrap();
        let (mut next, mut count) = (extent.ranges, 0);
        while let Some(range) = slots.range(next) {
            assert_eq!((range.extent, range.previous), (number, previous));
            (previous, next, count) = (next, range.next, count + 1);
        }
        assert_eq!(count, extent.references);
    }

    /// Compares everything, here and after a crash at this moment.
    pub(crate) fn check(&self, has_reads: bool) {
        self.check_slots(has_reads);
        self.compare(&mut self.index.clone());
        self.compare(&mut self.restored());
    }
}
