// SPDX-License-Identifier: GPL-2.0

//! What the volatile cache of a server's disk may lose, as the client of one device sees it.
//!
//! A write that was acknowledged may be in that cache only, until a flush has been acknowledged
//! that was sent *after* the write's acknowledgement. If the server's machine loses power in
//! between, the write is gone, and no flush to come can bring it back: the next one has to fail, so
//! that who waits for it knows.
//!
//! Flushes are numbered by generations. A write belongs to the generation in which it was
//! acknowledged; a flush that is sent ends the generation if there is such a write in it, and
//! covers all that have ended. So what may be lost is known by two bits: whether there is such a
//! write in the current generation, and in an earlier one. Of the earlier ones only the last
//! counts, for a flush that covers it covers all before.
//!
//! Everything is in one word, so that requests can change it by one atomic operation.

use super::flags::{
    Op,
    Rw, //
};

/// The device has a volatile cache.
const VOLATILE: u64 = 1 << 63;
/// A flush is to fail.
const OWES: u64 = 1 << 62;
/// A write was acknowledged in the current generation.
const CURRENT: u64 = 1 << 61;
/// One was in an earlier generation, and no flush that covers it was acknowledged.
const EARLIER: u64 = 1 << 60;
/// The number of the current generation.
const GENERATION: u64 = EARLIER - 1;

/// What may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache(u64);

/// The generation that was current when a flush was sent: it covers all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered(u64);

/// What the acknowledgement of a request means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Note {
    /// Nothing for the cache.
    #[default]
    Nothing,
    /// Something was written that is not durable.
    Write,
    /// What was acknowledged before the request was sent is durable.
    Flush(Covered),
}

/// The flush that fails in place of writes that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed;

impl Cache {
    /// Of a device that is not open yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Reads a state that was stored as a number.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the number.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    #[inline]
    const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    const fn next_generation(self) -> u64 {
        self.0.wrapping_add(1) & GENERATION
    }

    /// Whether a request that does `rw` changes the state when it is sent.
    #[inline]
    pub const fn is_flush(rw: &Rw) -> bool {
        matches!(rw.op, Op::Flush) || rw.preflush
    }

    /// What the acknowledgement of a request that is no flush will mean. A discard that is lost
    /// leaves what may be there after any discard.
    #[inline]
    pub const fn note_of(self, rw: &Rw) -> Note {
        let writes = matches!(rw.op, Op::Write | Op::WriteZeroes | Op::SecureErase);
        if writes && !rw.fua && self.has(VOLATILE) {
            Note::Write
        } else {
            Note::Nothing
        }
    }

    /// A flush is about to be sent.
    ///
    /// # Errors
    ///
    /// It is to fail instead, once.
    pub const fn flush_begins(self) -> (Self, Result<Covered, Owed>) {
        if self.has(OWES) {
            return (Self(self.0 & !OWES), Err(Owed));
        }
        if !self.has(CURRENT) {
            return (self, Ok(Covered(self.0 & GENERATION)));
        }
        let generation = self.next_generation();
        let bits = self.0 & VOLATILE | EARLIER;
        (Self(bits | generation), Ok(Covered(generation)))
    }

    /// A request was acknowledged.
    #[inline]
    pub const fn acknowledged(self, note: Note) -> Self {
        match note {
            Note::Nothing => self,
            Note::Write => Self(self.0 | CURRENT),
            Note::Flush(Covered(generation)) if self.0 & GENERATION == generation => {
                Self(self.0 & !EARLIER)
            }
            // Later writes than it covers were acknowledged before a later flush.
            Note::Flush(_) => self,
        }
    }

    /// Whether a flush is to fail if the device is opened now, behind a server that `restarted` or
    /// not.
    pub const fn will_owe(self, restarted: bool) -> bool {
        self.has(OWES) || restarted && self.has(CURRENT | EARLIER)
    }

    /// The device was opened, and no request is under way: with a volatile cache or without, by a
    /// server whose machine `restarted` since it was open last or did not. Says whether writes that
    /// were acknowledged may be gone.
    pub const fn opened(self, restarted: bool, is_volatile: bool) -> (Self, bool) {
        let volatile = if is_volatile { VOLATILE } else { 0 };
        if !restarted {
            return (Self(self.0 & !VOLATILE | volatile), false);
        }
        let is_lost = self.has(CURRENT | EARLIER);
        let owes = if self.will_owe(true) { OWES } else { 0 };
        // What was sent to the machine before covers nothing of what is written now.
        (Self(volatile | owes | self.next_generation()), is_lost)
    }
}
