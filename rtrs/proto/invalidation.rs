// SPDX-License-Identifier: GPL-2.0

//! What the client believes about keys that the server says it has invalidated.
//!
//! A server invalidates the key of a read by a message, and the response to the read says so. The
//! adapter checks the message: its key was valid. But a key comes again after 256 registrations of
//! its region, so a message proves something only about requests that were sent before it came. A
//! server that keeps one back on an idle connection would otherwise have a valid key taken for an
//! invalid one, and could write into pages that were given back.

/// The messages of one connection that have invalidated a key: their number, and the last key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidations(u64);

impl Invalidations {
    /// No message has come.
    pub const NONE: Self = Self(0);

    /// Returns what [`to_bits`](Self::to_bits) has returned.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the value as one word, which a driver keeps in an atomic.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the value after one more message, which has invalidated `key`.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, key: u32) -> Self {
        let count = self.count().wrapping_add(1);
        // CAST: widening, in a const function.
        Self((count as u64) << 32 | key as u64)
    }

    /// Returns the number of messages, modulo 2^32. A request keeps the number when it is sent.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        // CAST: the upper half.
        (self.0 >> 32) as u32
    }

    /// Returns whether the last message has invalidated `key`, and came after a request that was
    /// sent when there were `sent_at` messages. (After 2^32 messages meanwhile it says no, which is
    /// safe: the client then invalidates the key itself.)
    #[inline(always)]
    pub const fn prove(self, key: u32, sent_at: u32) -> bool {
        // CAST: the lower half.
        self.0 as u32 == key && self.count() != sent_at
    }
}
