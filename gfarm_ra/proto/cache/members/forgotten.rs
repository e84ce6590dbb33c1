// SPDX-License-Identifier: GPL-2.0

//! The nodes that had a place in the table, and have none any more.

use super::super::address::NodeId;

/// The number of bits, a power of two.
const BITS: u64 = 4096;

const WORDS: usize = BITS as usize / u64::BITS as usize;

/// A set of nodes, of which more may be taken to be in it than are: two bits for each. The numbers
/// of nodes are random, so their own digits spread them.
#[derive(Debug)]
pub(super) struct Forgotten([u64; WORDS]);

impl Forgotten {
    /// No node.
    pub(super) const NONE: Self = Self([0; WORDS]);

    /// Adds a node.
    pub(super) fn add(&mut self, node: NodeId) {
        for (word, bit) in Self::bits(node) {
            if let Some(word) = self.0.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Returns whether a node may be in the set.
    pub(super) fn may_have(&self, node: NodeId) -> bool {
        let is_set = |(word, bit)| self.0.get(word).is_some_and(|word| word & bit != 0);
        Self::bits(node).into_iter().all(is_set)
    }

    /// Returns the words and the bits of a node.
    fn bits(node: NodeId) -> [(usize, u64); 2] {
        let number = node.get();
        [number, number >> 32].map(|half| {
            let bit = half & (BITS - 1);
            // CAST: Below the number of words.
            (
                (bit / u64::from(u64::BITS)) as usize,
                1 << (bit % u64::from(u64::BITS)),
            )
        })
    }
}
