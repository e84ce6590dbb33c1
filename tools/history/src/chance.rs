// SPDX-License-Identifier: GPL-2.0

//! Chance that a seed repeats (splitmix64).

/// A source of numbers.
pub(crate) struct Chance(u64);

impl Chance {
    /// The numbers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    /// A number below `limit`; 0 when that is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 32).checked_rem(limit as u64).unwrap_or(0) as usize
    }
}
