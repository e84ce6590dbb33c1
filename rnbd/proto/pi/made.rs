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
