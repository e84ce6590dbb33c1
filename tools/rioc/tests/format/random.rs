// SPDX-License-Identifier: GPL-2.0

//! Numbers by chance, and those at which something ends.

/// A generator that gives the same numbers each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }

    /// Returns a number at which something may end, or any.
    pub(crate) fn number(&mut self) -> u64 {
        const ENDS: [u64; 12] = [
            0,
            1,
            4095,
            4096,
            114_688,
            114_689,
            1 << 31,
            u32::MAX as u64,
            u32::MAX as u64 * 4096,
            1 << 44,
            1 << 63,
            u64::MAX,
        ];
        match self.below(4) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            2 => ENDS[self.below(ENDS.len())],
            _ => ENDS[self.below(ENDS.len())]
                .wrapping_add(self.next() % 3)
                .wrapping_sub(1),
        }
    }
}
