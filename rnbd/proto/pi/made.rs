// SPDX-License-Identifier: GPL-2.0

//! What a client keeps of the tuples that it has made for a write, until that has ended.
//!
//! A write that comes again, after an outage, gets the same tuples: data that has changed in memory
//! meanwhile must not get ones that are right.

/// An odd number without a pattern: the golden ratio of 64 bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A digest of the guards of a write, in their order. Two that differ in one guard have different
/// digests; others most probably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made(u64);

impl Made {
    /// That of no guard.
    pub const NOTHING: Self = Self(FACTOR);

    /// Returns the digest of the guards so far and of another one.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, guard: u64) -> Self {
        // Both steps can be undone, so that none loses a difference.
        Self((self.0 ^ guard).wrapping_mul(FACTOR))
    }
}

/// What was made first for the write that has a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstMade(Option<Made>);

impl FirstMade {
    /// Tuples were made, and the write is about to be sent. Returns whether they are those that it
    /// had first.
    #[inline]
    pub fn keep(&mut self, made: Made) -> bool {
        *self.0.get_or_insert(made) == made
    }

    /// The write was not taken, and starts again. If no copy of it `was_sent` another one may have
    /// its tag then: dm-multipath frees a request that is rejected at its first start.
    pub fn rejected(&mut self, was_sent: bool) {
        if !was_sent {
            self.ended();
        }
    }

    /// The write has ended: the next one with its tag has other data.
    #[inline]
    pub fn ended(&mut self) {
        self.0 = None;
    }
}
