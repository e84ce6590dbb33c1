// SPDX-License-Identifier: GPL-2.0

//! The pages of a store in memory: which of them an extent has, and what each of them has.
//!
//! An extent is a list of pages, so that any free ones will do, and is known by the first of them.
//! A page that is freed leaves the list. The first page stays, as long as there is one: it takes
//! the content of the second one, which goes instead.

use super::slot::{
    Blocks,
    Memory,
    NONE, //
};

/// A page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The next page of the extent, or the next free one.
    next: u32,
    /// The CRC of the block.
    sum: u32,
    /// The number of the block in the extent.
    block: u8,
}

impl Page {
    /// A page before it is one of [`PageTable`].
    pub const UNUSED: Self = Self {
        next: NONE,
        sum: 0,
        block: 0,
    };
}

/// The pages, by their numbers.
#[derive(Clone, Debug)]
pub struct PageTable<P> {
    all: P,
    free: u32,
}

impl<P: Memory<Page>> PageTable<P> {
    /// Begins with free pages, as many as there is memory for.
    pub fn new(mut all: P) -> Self {
        let mut free = NONE;
        for (number, page) in (0..NONE).zip(all.as_mut()) {
            page.next = free;
            free = number;
        }
        Self { all, free }
    }

    fn get(&self, number: u32) -> Option<&Page> {
        self.all.as_ref().get(number as usize)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Page> {
        self.all.as_mut().get_mut(number as usize)
    }

    /// Takes a page for the next block of an extent, behind its last page; `None` if there is none.
    pub fn add(&mut self, last: Option<u32>, sum: u32) -> Option<u32> {
        let number = self.free;
        let before = last.and_then(|last| self.get(last));
        let block = before.map_or(0, |page| page.block.saturating_add(1));
        let page = self.get_mut(number)?;
        let next = page.next;
        *page = Page {
            next: NONE,
            sum,
            block,
        };
        self.free = next;
        if let Some(last) = last.and_then(|last| self.get_mut(last)) {
            last.next = number;
        }
        Some(number)
    }

    /// Returns the page of a block of an extent, and the CRC of the block.
    pub fn find(&self, first: u32, block: u8) -> Option<(u32, u32)> {
        let (mut number, mut page) = (first, self.get(first)?);
        while page.block != block {
            number = page.next;
            page = self.get(number)?;
        }
        Some((number, page.sum))
    }

    fn give_back(&mut self, number: u32) {
        let free = self.free;
        if let Some(page) = self.get_mut(number) {
            page.next = free;
            self.free = number;
        }
    }

    /// Frees blocks of an extent. Returns two pages if the content of one has to be copied to the
    /// other, which is done before anything else.
    #[must_use = "the content has to be copied"]
    pub fn free(&mut self, first: u32, blocks: Blocks) -> Option<(u32, u32)> {
        let mut last = first;
        while let Some(next) = self.get(last).map(|page| page.next) {
            let Some(page) = self.get(next).copied() else {
                break;
            };
            if blocks.contains(page.block) {
                if let Some(last) = self.get_mut(last) {
                    last.next = page.next;
                }
                self.give_back(next);
            } else {
                last = next;
            }
        }
        let page = self.get(first).copied();
        let page = page.filter(|page| blocks.contains(page.block))?;
        let Some(second) = self.get(page.next).copied() else {
            self.give_back(first);
            return None;
        };
        if let Some(to) = self.get_mut(first) {
            *to = second;
        }
        self.give_back(page.next);
        Some((page.next, first))
    }
}
