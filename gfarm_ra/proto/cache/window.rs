// SPDX-License-Identifier: GPL-2.0

//! Tells which datagrams of a peer were received before.
//!
//! A node numbers the datagrams that it sends to each other node, each with a larger number, and
//! its peer accepts each number once. Datagrams overtake each other, so the peer remembers the last
//! 64 numbers, one bit each, and refuses older ones.
//!
//! No clock is needed: both nodes' numbers, drawn anew by each mount, are in the datagram, so one
//! that was recorded earlier is of another pair of nodes.

/// The numbers that are told apart; older ones are refused.
pub const WINDOW_LEN: u64 = u64::BITS as u64;

/// The numbers that were received from one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// The largest one; 0 if there was none.
    last: u64,
    /// Bit n: `last - n` was received.
    seen: u64,
}

impl ReplayWindow {
    /// No datagram was received yet.
    pub const NEW: Self = Self { last: 0, seen: 0 };

    /// Returns the one of two that has the larger number.
    pub fn newer(self, other: Self) -> Self {
        if other.last > self.last {
            other
        } else {
            self
        }
    }

    /// Takes the number of a datagram whose code is right. Returns whether it is new; otherwise the
    /// datagram is a repetition, or too old to tell.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if let Some(ahead) = sequence.checked_sub(self.last).filter(|ahead| *ahead != 0) {
            self.seen = match u32::try_from(ahead) {
                Ok(ahead) => self.seen.checked_shl(ahead).unwrap_or(0) | 1,
                Err(_) => 1,
            };
            self.last = sequence;
            return true;
        }
        let behind = self.last.wrapping_sub(sequence);
        if sequence == 0 || behind >= WINDOW_LEN {
            return false;
        }
        let bit = 1u64 << behind;
        let is_new = self.seen & bit == 0;
        self.seen |= bit;
        is_new
    }
}
