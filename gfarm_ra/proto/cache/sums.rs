// SPDX-License-Identifier: GPL-2.0

//! The sums of the pages that a node has, by which the next one sees whether they are still what a
//! file server has sent: memory goes bad, and what one node has is given to all.
//!
//! They are kept for contents, not for the pages of the page cache: one that is read once more has
//! the same sum, and whose sum is not known any more is not given to others. So nothing has to tell
//! the table when a page goes. That a page is damaged says nothing of its sum either: others may be
//! about to give the same page, and find it by that.

use core::ops::DerefMut;

use super::{
    super::identity::ContentId,
    owner::ChunkKey,
    pages::{
        PageSet,
        PAGES, //
    },
    request::Wanted, //
};

/// The number of entries among which a chunk has its place.
pub const WAYS: usize = 8;

/// The value of `cc_verify=`: which pages are compared with their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verify {
    /// None, and no sums are made.
    Off,
    /// Pages that come from other nodes. Of those from a file server the sums are made.
    Received,
    /// Pages that are given to other nodes, too.
    Given,
}

impl Verify {
    /// Reads the value of the option.
    pub const fn new(value: u32) -> Self {
        match value {
            0 => Self::Off,
            1 => Self::Received,
            _ => Self::Given,
        }
    }
}

/// A chunk of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    id: ContentId,
    size_bytes: u64,
    chunk: u64,
}

impl Place {
    const fn of(wanted: &Wanted) -> Self {
        Self {
            id: wanted.id(),
            size_bytes: wanted.size_bytes(),
            chunk: wanted.chunk(),
        }
    }
}

/// The sums of pages of one chunk.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    place: Option<Place>,
    /// The number of its last use.
    used: u64,
    known: PageSet,
    sums: [u32; PAGES],
}

impl Entry {
    /// No chunk.
    pub const EMPTY: Self = Self {
        place: None,
        used: 0,
        known: PageSet::EMPTY,
        sums: [0; PAGES],
    };

    /// Returns the sum of a page that is [known](SumTable::known); of another one any number.
    pub fn sum(&self, page: u8) -> u32 {
        self.sums.get(usize::from(page)).copied().unwrap_or(0)
    }
}

/// The sums that a node knows, in memory that the caller has.
#[derive(Debug)]
pub struct SumTable<S> {
    entries: S,
    uses: u64,
}

impl<S: DerefMut<Target = [Entry]>> SumTable<S> {
    /// Begins without a sum; all entries are [`Entry::EMPTY`].
    pub const fn new(entries: S) -> Self {
        Self { entries, uses: 0 }
    }

    /// Returns the entries among which a chunk has its place.
    fn ways(&mut self, place: &Place) -> Option<&mut [Entry]> {
        let hash = ChunkKey::new(place.id.file.inum, place.chunk).hash();
        // CAST: The number of entries fits.
        let sets = (self.entries.len() / WAYS) as u64;
        let set = hash.checked_rem(sets)? as usize;
        let start = set.saturating_mul(WAYS);
        self.entries.get_mut(start..start.saturating_add(WAYS))
    }

    /// Returns the entry of a chunk, which is used by this; `None` if no sum of it is known.
    pub fn find(&mut self, wanted: &Wanted) -> Option<&mut Entry> {
        let place = Place::of(wanted);
        self.uses = self.uses.saturating_add(1);
        let uses = self.uses;
        let mut ways = self.ways(&place)?.iter_mut();
        let entry = ways.find(|entry| entry.place == Some(place))?;
        entry.used = uses;
        Some(entry)
    }

    /// Returns the pages, of those that are wanted, whose sums are known.
    pub fn known(&mut self, wanted: &Wanted) -> PageSet {
        let entry = self.find(wanted);
        entry.map_or(PageSet::EMPTY, |entry| {
            entry.known.intersection(wanted.pages())
        })
    }

    /// Takes the sums of the pages that are wanted. If there is no room, the chunk of those in
    /// question is forgotten that was used least lately.
    pub fn put(&mut self, wanted: &Wanted, sum_of: impl Fn(u8) -> u32) {
        let place = Place::of(wanted);
        if self.find(wanted).is_none() {
            let uses = self.uses;
            let ways = self.ways(&place).into_iter().flatten();
            let Some(oldest) = ways.min_by_key(|entry| entry.used) else {
                return;
            };
            (oldest.place, oldest.used) = (Some(place), uses);
            oldest.known = PageSet::EMPTY;
        }
        let Some(entry) = self.find(wanted) else {
            return;
        };
        for page in wanted.pages().iter() {
            if let Some(sum) = entry.sums.get_mut(usize::from(page)) {
                *sum = sum_of(page);
            }
        }
        entry.known = entry.known.union(wanted.pages());
    }

    /// Returns whether a page has another sum, `found`, than the one that is known of it. The known
    /// one stays: it is that of the content.
    pub fn is_damaged(&mut self, wanted: &Wanted, page: u8, found: u32) -> bool {
        self.find(wanted)
            .filter(|entry| entry.known.contains(page))
            .is_some_and(|entry| entry.sum(page) != found)
    }
}
