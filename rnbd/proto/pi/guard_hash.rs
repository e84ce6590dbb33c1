// SPDX-License-Identifier: GPL-2.0

//! The hash of the guards that a client has generated for a write, kept until the write has ended.
//!
//! A write that is sent again after an outage gets the same tuples: data that has changed in
//! memory meanwhile must not get tuples that fit.

/// An odd number without a pattern: the golden ratio of 64 bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of the guards of a write, in their order. Two writes that differ in one guard have
/// different hashes; others most probably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardHash(u64);

impl GuardHash {
    /// The hash of no guard.
    pub const NOTHING: Self = Self(FACTOR);

    /// Returns the hash of the guards so far and of another one.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, guard: u64) -> Self {
        // Both steps can be undone, so that none loses a difference.
        Self((self.0 ^ guard).wrapping_mul(FACTOR))
    }
}

/// The hash of the guards that were generated first for the write with a tag; `None` before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstGuardHash(Option<GuardHash>);

impl FirstGuardHash {
    /// Keeps the hash of the tuples of a write that is about to be sent, if it is the first one.
    /// Returns whether it is that of the first ones.
    #[inline]
    pub fn keep(&mut self, hash: GuardHash) -> bool {
        *self.0.get_or_insert(hash) == hash
    }

    /// Forgets the hash of a write that was rejected, unless it `was_sent`. Without a copy of it in
    /// flight another write may have its tag next: dm-multipath frees a request that is rejected at
    /// its first start.
    pub fn rejected(&mut self, was_sent: bool) {
        if !was_sent {
            self.ended();
        }
    }

    /// Forgets the hash of a write that has ended: the next one with its tag has other data.
    #[inline]
    pub fn ended(&mut self) {
        self.0 = None;
    }
}
