// SPDX-License-Identifier: GPL-2.0

//! The client's record of the writes that the volatile cache of a server's disk may lose.
//!
//! An acknowledged write may be in that cache only, until the acknowledgement of a flush that was
//! sent *after* the write's acknowledgement. If the server's machine loses power in between, the
//! write is lost, and no later flush can restore it: the next flush has to fail, so that its
//! submitter detects the loss.
//!
//! Flushes are numbered by generations. A write belongs to the generation in which it was
//! acknowledged; a flush that is sent ends the generation if there is such a write in it, and
//! covers all that have ended. So two bits are sufficient: whether there is such a write in the
//! current generation, and in an earlier one. Of the earlier ones only the last counts, as a flush
//! that covers it covers all before.
//!
//! The state is one word, which requests change by one atomic operation.

use super::flags::{
    Op,
    Rw,
    RwFlags, //
};

/// The device has a volatile cache.
const VOLATILE: u64 = 1 << 63;
/// A flush must fail.
const OWES: u64 = 1 << 62;
/// A write was acknowledged in the current generation.
const CURRENT: u64 = 1 << 61;
/// A write was acknowledged in an earlier generation, and no flush that covers it.
const EARLIER: u64 = 1 << 60;
/// The number of the current generation.
const GENERATION: u64 = EARLIER - 1;

/// The writes that may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache(u64);

/// The generation that was current when a flush was sent: it covers all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered(u64);

/// The effect of the acknowledgement of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Note {
    /// No effect on the cache.
    #[default]
    Nothing,
    /// Data were written that are not durable.
    Write,
    /// Writes acknowledged before the request was sent are durable.
    Flush(Covered),
}

/// The error of a flush after a loss of acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed;

impl Cache {
    /// The state of a device that is not open yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Converts a stored number to a state.
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

    /// Returns whether a request that does `rw` changes the state when it is sent.
    #[inline]
    pub const fn is_flush(rw: &Rw) -> bool {
        matches!(rw.op, Op::Flush) || rw.flags.has(RwFlags::PREFLUSH)
    }

    /// Returns the effect of the acknowledgement of a request that is not a flush. A lost discard
    /// has no effect, as the content after a discard is undefined.
    #[inline]
    pub const fn note_of(self, rw: &Rw) -> Note {
        let writes = matches!(rw.op, Op::Write | Op::WriteZeroes | Op::SecureErase);
        if writes && !rw.flags.has(RwFlags::FUA) && self.has(VOLATILE) {
            Note::Write
        } else {
            Note::Nothing
        }
    }

    /// Starts a flush, before it is sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the flush must fail instead, once.
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

    /// Handles the acknowledgement of a request.
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

    /// Returns whether a flush must fail if the device is opened now, on a server that `restarted`
    /// or not.
    pub const fn will_owe(self, restarted: bool) -> bool {
        self.has(OWES) || restarted && self.has(CURRENT | EARLIER)
    }

    /// Handles the open of the device, with no request in flight: with or without a volatile cache,
    /// by a server whose machine `restarted` since the last open or not. Returns whether
    /// acknowledged writes may be lost.
    pub const fn opened(self, restarted: bool, is_volatile: bool) -> (Self, bool) {
        let volatile = if is_volatile { VOLATILE } else { 0 };
        if !restarted {
            return (Self(self.0 & !VOLATILE | volatile), false);
        }
        let is_lost = self.has(CURRENT | EARLIER);
        let owes = if self.will_owe(true) { OWES } else { 0 };
        // Flushes sent to the machine before cover no write from now on.
        (Self(volatile | owes | self.next_generation()), is_lost)
    }
}
