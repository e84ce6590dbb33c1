// SPDX-License-Identifier: GPL-2.0

//! SipHash-2-4: a short keyed hash of texts, which does not disclose them.
//!
//! The kernel has the same function (`include/linux/siphash.h`). Pure code cannot call it, and
//! `core` has no stable one; the tests compare this one with the reference vectors.

/// A hash of bytes that are added in pieces, independent of the boundaries of the pieces.
#[derive(Clone, Debug)]
pub struct SipHash {
    state: [u64; 4],
    /// The bytes of an incomplete word, the first one lowest.
    rest: u64,
    /// The number of bytes so far.
    len: u64,
}

impl SipHash {
    /// Creates an empty hash with a key of two words.
    pub const fn new(key: [u64; 2]) -> Self {
        let [k0, k1] = key;
        Self {
            state: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            rest: 0,
            len: 0,
        }
    }

    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.state;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.state = [v0, v1, v2, v3];
    }

    fn word(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.round();
        self.state[0] ^= word;
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        // CAST: Below 8.
        let place = (self.len % 8) as usize;
        let missing = 8usize.saturating_sub(place) % 8;
        let (first, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
        self.add(first);
        let words = rest.chunks_exact(8);
        let last = words.remainder();
        for word in words {
            if let Some(word) = word.first_chunk() {
                self.word(u64::from_le_bytes(*word));
            }
            self.len = self.len.wrapping_add(8);
        }
        self.add(last);
    }

    /// Adds bytes one by one.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let place = self.len % 8;
            self.rest |= u64::from(*byte) << place.wrapping_mul(8);
            self.len = self.len.wrapping_add(1);
            if place == 7 {
                self.word(self.rest);
                self.rest = 0;
            }
        }
    }

    /// Returns the hash of all bytes.
    pub fn finish(mut self) -> u64 {
        self.word(self.rest | self.len << 56);
        self.state[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.state.into_iter().fold(0, |all, word| all ^ word)
    }
}
