// SPDX-License-Identifier: GPL-2.0

//! Sets of pages of a chunk.
//!
//! The bytes of a file are divided into chunks of 1 MiB, a chunk into 256 pages. A request is about
//! pages of one chunk, and names them by a set: any 32 bytes that a peer sends are a valid one,
//! without order, overlap or overflow to check.

use super::PAGE_LEN;

/// The number of pages of a chunk.
pub const PAGES: usize = 256;

/// The length of a chunk, in bytes.
pub const CHUNK_LEN: u64 = PAGES as u64 * PAGE_LEN;

const WORDS: usize = PAGES / u64::BITS as usize;

/// A set of pages of a chunk; each page has a number from 0 to 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PageSet([u64; WORDS]);

impl PageSet {
    /// No page.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Creates the set of `count` pages from `first` on, or of those up to the end of the chunk.
    pub fn range(first: u8, count: usize) -> Self {
        let first = usize::from(first);
        Self::below(first.saturating_add(count)).difference(Self::below(first))
    }

    /// Creates the set of all pages below one.
    fn below(page: usize) -> Self {
        let mut words = [0; WORDS];
        let starts = (0..PAGES).step_by(u64::BITS as usize);
        for (word, start) in words.iter_mut().zip(starts) {
            // CAST: At most 64.
            let bits = page.saturating_sub(start).min(u64::BITS as usize) as u32;
            // All bits but the highest ones; none if all are shifted out.
            *word = u64::MAX
                .checked_shr(u64::BITS.wrapping_sub(bits))
                .unwrap_or(0);
        }
        Self(words)
    }

    /// Returns the pages of a chunk that have bytes of a file of `size_bytes`.
    pub fn of_file(chunk: u64, size_bytes: u64) -> Self {
        let Some(start) = chunk.checked_mul(CHUNK_LEN) else {
            return Self::EMPTY;
        };
        let rest = size_bytes.saturating_sub(start).min(CHUNK_LEN);
        // CAST: At most 256.
        Self::range(0, rest.div_ceil(PAGE_LEN) as usize)
    }

    /// Converts the numbers of a message: the lowest bit of the first one is page 0.
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Returns the numbers for a message.
    pub const fn to_words(self) -> [u64; WORDS] {
        self.0
    }

    const fn place(page: u8) -> (usize, u64) {
        // CAST: Below 4.
        let word = (page / 64) as usize;
        (word, 1u64.wrapping_shl(page as u32 % 64))
    }

    /// Adds a page.
    pub fn insert(&mut self, page: u8) {
        let (word, bit) = Self::place(page);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// Takes a page out.
    pub fn remove(&mut self, page: u8) {
        let (word, bit) = Self::place(page);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Returns whether a page is in the set.
    pub fn contains(&self, page: u8) -> bool {
        let (word, bit) = Self::place(page);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns the number of pages, from 0 to 256.
    pub fn len(&self) -> usize {
        // CAST: A `u32` fits `usize`.
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether no page is in the set.
    pub fn is_empty(&self) -> bool {
        // Not by `==`, which calls a function that compares bytes.
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    fn combine(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word = with(*word, other);
        }
        Self(words)
    }

    /// Returns the pages of either set.
    pub fn union(self, other: Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// Returns the pages of both sets.
    pub fn intersection(self, other: Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    /// Returns the pages of this set that are not in the other one.
    pub fn difference(self, other: Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    /// Returns whether all pages of this set are in the other one.
    pub fn is_subset(self, other: Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Returns whether no page is in both sets.
    pub fn is_disjoint(self, other: Self) -> bool {
        self.intersection(other).is_empty()
    }

    /// Returns the pages in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        let firsts = [0u8, 64, 128, 192].into_iter();
        firsts.zip(self.0).flat_map(|(first, mut word)| {
            core::iter::from_fn(move || {
                // CAST: Below 64, as the word is not 0.
                let page = (word != 0).then(|| first | word.trailing_zeros() as u8)?;
                word &= word.wrapping_sub(1);
                Some(page)
            })
        })
    }

    /// Returns the number of pages that follow each other in the set from `page` on; 0 without it.
    pub fn run(&self, page: u8) -> usize {
        let mut at = usize::from(page);
        for word in self.0.iter().skip(at / u64::BITS as usize) {
            // CAST: Below 64.
            let within = (at % u64::BITS as usize) as u32;
            let ones = word.wrapping_shr(within).trailing_ones();
            // CAST: At most 64.
            at = at.saturating_add(ones as usize);
            if within.saturating_add(ones) < u64::BITS {
                break;
            }
        }
        at.saturating_sub(page.into())
    }

    /// Returns the `count` lowest pages, or all if there are fewer.
    pub fn lowest(self, count: usize) -> Self {
        match self.nth(count) {
            Some(page) => self.intersection(Self::below(page.into())),
            None => self,
        }
    }

    /// Returns the number of pages of the set below `page`: the place of `page` in a row of the
    /// set's pages.
    pub fn rank(&self, page: u8) -> usize {
        self.intersection(Self::below(page.into())).len()
    }

    /// Returns the page at a place in a row of the set's pages.
    pub fn nth(self, rank: usize) -> Option<u8> {
        let mut rest = rank;
        for (first, mut word) in [0u8, 64, 128, 192].into_iter().zip(self.0) {
            // CAST: A `u32` fits `usize`.
            let count = match word {
                // Most requests are for pages without a gap, and counting bits takes its time.
                u64::MAX => u64::BITS as usize,
                word => word.count_ones() as usize,
            };
            if rest < count {
                if word == u64::MAX {
                    // CAST: Below 64.
                    return Some(first | rest as u8);
                }
                for _ in 0..rest {
                    word &= word.wrapping_sub(1);
                }
                // CAST: Below 64, as the word is not 0.
                return Some(first | word.trailing_zeros() as u8);
            }
            rest = rest.wrapping_sub(count);
        }
        None
    }
}
