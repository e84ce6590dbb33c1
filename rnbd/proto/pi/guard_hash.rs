// SPDX-License-Identifier: GPL-2.0

//! The hash of the guards that a client has generated for a write, kept until the write has ended.
//!
//! A write that is sent again after an outage gets the same tuples: data that has changed in
//! memory meanwhile must not get tuples that fit, as a copy of the write may be carried out yet.
//!
//! A write that the server has refused, as its data do not fit, was not carried out. If its data
//! have changed in memory since its tuples were made, that is a program or a virtual machine that
//! uses the memory of a direct write again before it has ended, which Linux permits: it is sent
//! once more, with new tuples. If they have not, the data were damaged on their way, which its user
//! is told.

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

/// The knowledge of a client of the tuples that it has generated for the write with a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstGuardHash {
    /// None were generated.
    #[default]
    None,
    /// The hash of the first ones.
    First(GuardHash),
    /// The server has refused the write with these.
    Refused(GuardHash),
    /// The hash of the ones that were generated after that.
    Again(GuardHash),
}

/// Whether a write may be sent with the tuples that were generated for it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardCheck {
    /// Yes.
    Send,
    /// Yes: its data have changed since the server has refused it.
    SendAgain,
    /// No: its data have changed, and a copy with the tuples of before may be carried out yet.
    Changed,
    /// No: its data are what they were, so they were damaged on their way.
    Damaged,
}

impl FirstGuardHash {
    /// Keeps the hash of the tuples of a write that is about to be sent, unless it was sent with
    /// others that count.
    #[inline]
    pub fn keep(&mut self, hash: GuardHash) -> GuardCheck {
        match *self {
            Self::None => {
                *self = Self::First(hash);
                GuardCheck::Send
            }
            Self::First(first) | Self::Again(first) if first == hash => GuardCheck::Send,
            Self::First(_) | Self::Again(_) => GuardCheck::Changed,
            Self::Refused(refused) if refused == hash => GuardCheck::Damaged,
            Self::Refused(_) => {
                *self = Self::Again(hash);
                GuardCheck::SendAgain
            }
        }
    }

    /// Notes that the server has refused the write, as its data do not fit its tuples. Returns
    /// whether it is to be begun once more: it was not yet, and its tuples were generated.
    pub fn refused(&mut self) -> bool {
        let Self::First(hash) = *self else {
            return false;
        };
        *self = Self::Refused(hash);
        true
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
        *self = Self::None;
    }
}
