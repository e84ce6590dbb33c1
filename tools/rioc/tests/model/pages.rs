// SPDX-License-Identifier: GPL-2.0

//! The pages of a store in memory, beside a map: extents of any length lose their blocks in any
//! order, and what is left of each is there.

use std::collections::BTreeMap;

use rioc::proto::{
    pages::{
        Page,
        PageTable, //
    },
    slot::Blocks, //
};

use crate::random::Random;

const PAGES: usize = 60;

struct World {
    table: PageTable<Vec<Page>>,
    /// The content of each page.
    pages: Vec<u32>,
    /// The blocks of each extent, by its first page.
    extents: BTreeMap<u32, BTreeMap<u8, u32>>,
}

impl World {
    fn new() -> Self {
        Self {
            table: PageTable::new(vec![Page::UNUSED; PAGES]),
            pages: vec![0; PAGES],
            extents: BTreeMap::new(),
        }
    }

    fn used(&self) -> usize {
        self.extents.values().map(BTreeMap::len).sum()
    }

    fn put(&mut self, blocks: u8, stamp: u32) {
        let (mut last, mut first, mut extent) = (None, None, BTreeMap::new());
        let is_room = self.used() + usize::from(blocks) <= PAGES;
        for block in 0..blocks {
            let sum = stamp ^ u32::from(block);
            let Some(page) = self.table.add(last, sum) else {
                assert!(!is_room, "a page is lost");
                if let Some(first) = first {
                    assert_eq!(self.table.free(first, Blocks::of(0, block)), None);
                }
                return;
            };
            self.pages[page as usize] = sum;
            extent.insert(block, sum);
            (last, first) = (Some(page), first.or(Some(page)));
        }
        assert!(is_room, "a page is used twice");
        assert_eq!(self.extents.insert(first.unwrap(), extent), None);
    }

    fn free(&mut self, first: u32, blocks: &[u8]) {
        for block in blocks {
            let moved = self.table.free(first, Blocks::of(*block, 1));
            if let Some((from, to)) = moved {
                self.pages[to as usize] = self.pages[from as usize];
            }
            let extent = self.extents.get_mut(&first).unwrap();
            extent.remove(block).unwrap();
        }
        self.extents.retain(|_, extent| !extent.is_empty());
    }

    fn check(&self) {
        for (first, extent) in &self.extents {
            for block in 0..29 {
                let found = self.table.find(*first, block);
                let content = found.map(|(page, sum)| (self.pages[page as usize], sum));
                let expected = extent.get(&block).map(|sum| (*sum, *sum));
                assert_eq!(content, expected, "block {block} of {first}");
            }
        }
    }
}

#[test]
fn an_extent_keeps_what_was_not_freed_of_it() {
    for seed in 0..300 {
        let (mut random, mut world) = (Random::new(seed), World::new());
        for step in 0..200u32 {
            let all: Vec<_> = world.extents.keys().copied().collect();
            if all.is_empty() || random.below(3) == 0 {
                world.put(1 + random.below(29) as u8, step << 8);
            } else {
                let first = all[random.below(all.len())];
                let mut blocks: Vec<_> = world.extents[&first].keys().copied().collect();
                let kept = random.below(blocks.len() + 1);
                for _ in 0..kept {
                    blocks.remove(random.below(blocks.len()));
                }
                world.free(first, &blocks);
            }
            world.check();
        }
    }
}

#[test]
fn blocks_that_are_freed_together_are_as_those_one_by_one() {
    for freed in 1..32u8 {
        let mut world = World::new();
        world.put(5, 0x100);
        let (&first, _) = world.extents.first_key_value().unwrap();
        let is_freed = |block: &u8| freed >> block & 1 != 0;
        let bits = (0..5).filter(is_freed).map(|block| Blocks::of(block, 1));
        let all = Blocks::of(0, 5);
        let kept = bits.fold(all, Blocks::minus);
        if let Some((from, to)) = world.table.free(first, all.minus(kept)) {
            world.pages[to as usize] = world.pages[from as usize];
        }
        let extent = world.extents.get_mut(&first).unwrap();
        extent.retain(|block, _| !is_freed(block));
        world.extents.retain(|_, extent| !extent.is_empty());
        world.check();
        world.put(29, 0x200);
        world.check();
    }
}
