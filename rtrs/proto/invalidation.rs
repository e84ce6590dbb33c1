// SPDX-License-Identifier: GPL-2.0

//! The client's belief about keys that the server says it has invalidated.
//!
//! A server invalidates the key of a read by a message, and the response to the read says so. The
//! adapter checks the message when it comes: its key was valid then. But the completion of a
//! message may be handled much later, as that of an idle connection whose queue is only polled, and
//! a region has 256 keys, so each comes again. A message of an earlier registration under the same
//! key must not be taken for one of the last: the server could write into pages that were given
//! back.
//!
//! So the client orders registrations and messages by a clock that counts *ticks*. A region uses
//! one half of its keys after the other, and the clock ticks when it begins a half ([`Keys`]).
//! Once the receives of a connection have shown that what is still to come from its queue was
//! executed after the tick at which the half before was begun, a message about the key can only be
//! one of its last registration: the one before ended earlier ([`Message::proves`]). Two things
//! show it:
//!
//! - a message that is believed: it came while its key was registered, and queues keep the order;
//! - as many completions as there are receives ([`Mark`]): a message that came before has used a
//!   receive that was posted before.
//!
//! As long as neither has shown it, the client does not ask the server and invalidates the key
//! itself. Meanwhile the region stays in its half, so that the connection catches up.

/// The key variants of one half: a region has twice as many.
pub const KEYS_OF_HALF: u8 = 128;

/// The use of the keys of one region. `HALF` is [`KEYS_OF_HALF`], or a smaller power of two in a
/// test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys<const HALF: u8 = KEYS_OF_HALF> {
    /// The tick at which the half in use was begun.
    newer: u64,
    /// The tick at which the half before it was begun; [`NEVER`] while keys of the half in use are
    /// used once more.
    older: u64,
}

/// A tick that no connection shows.
const NEVER: u64 = u64::MAX;

impl<const HALF: u8> Keys<HALF> {
    /// The lowest bits of a key that differ within a half.
    const WITHIN: u8 = HALF.wrapping_sub(1);
    /// The lowest bits of a key that differ within a region.
    const VARIANT: u8 = HALF.wrapping_add(Self::WITHIN);

    /// A region that was not registered yet.
    pub const NEW: Self = Self { newer: 0, older: 0 };

    /// Chooses the next key of the region, whose last one has the variant `last`, for a request on
    /// a connection that has `shown` a tick. Returns its variant, and whether a message of the
    /// server about it can be believed.
    ///
    /// `tick` advances the clock and returns the new value.
    #[inline(always)]
    pub fn next(&mut self, last: u8, shown: u64, tick: impl FnOnce() -> u64) -> (u8, bool) {
        let next = last.wrapping_add(1) & Self::VARIANT;
        if next & Self::WITHIN != 0 {
            return (next, shown >= self.older);
        }
        if shown < self.newer {
            self.older = NEVER;
            return (next.wrapping_sub(HALF) & Self::VARIANT, false);
        }
        self.older = self.newer;
        self.newer = tick();
        (next, true)
    }

    /// Returns the tick before which every earlier registration under the last key has ended, if
    /// [`next`](Self::next) has said that a message about it can be believed.
    #[inline(always)]
    pub const fn since(&self) -> u64 {
        self.older
    }
}

/// The last message of a connection that has invalidated a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The key, or a value beyond all keys.
    key: u64,
    /// The time that the connection had shown when its completion was handled.
    after: u64,
}

impl Message {
    /// No message has come.
    pub const NONE: Self = Self {
        key: u64::MAX,
        after: 0,
    };

    /// The message about `key` on a connection that has `shown` a tick.
    #[inline(always)]
    pub const fn new(key: u32, shown: u64) -> Self {
        // CAST: widening, in a const function.
        Self {
            key: key as u64,
            after: shown,
        }
    }

    /// Returns what [`to_words`](Self::to_words) has returned.
    #[inline(always)]
    pub const fn from_words((key, after): (u64, u64)) -> Self {
        Self { key, after }
    }

    /// Returns the value as two words, which a driver keeps in atomics.
    #[inline(always)]
    pub const fn to_words(self) -> (u64, u64) {
        (self.key, self.after)
    }

    /// Returns whether the message has ended the last registration under `key`, all earlier ones of
    /// which have ended before the tick `since`.
    #[inline(always)]
    pub const fn proves(self, key: u32, since: u64) -> bool {
        // CAST: widening, in a const function.
        self.key == key as u64 && self.after >= since
    }
}

/// A count of completions on one connection: messages that came before the tick of the mark have
/// been handled when there were as many as the connection has receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    tick: u64,
    /// Batches of receives that are to be posted again; 0 if no mark was set.
    left: u32,
}

impl Mark {
    /// No mark was set.
    pub const NONE: Self = Self { tick: 0, left: 0 };

    /// Returns what [`to_words`](Self::to_words) has returned.
    #[inline]
    pub const fn from_words((tick, left): (u64, u32)) -> Self {
        Self { tick, left }
    }

    /// Returns the value as two words, which a driver keeps in atomics.
    #[inline]
    pub const fn to_words(self) -> (u64, u32) {
        (self.tick, self.left)
    }

    /// Handles that one of `batches` batches of receives was used and posted again, when the clock
    /// showed `now`: returns the mark, and the tick that the connection has shown by that.
    #[must_use]
    pub const fn posted(self, now: u64, batches: u32) -> (Self, Option<u64>) {
        match self.left {
            0 | 1 => {
                let shown = match self.left {
                    0 => None,
                    _ => Some(self.tick),
                };
                let mark = Self {
                    tick: now,
                    left: batches,
                };
                (mark, shown)
            }
            left => {
                let mark = Self {
                    tick: self.tick,
                    left: left.wrapping_sub(1),
                };
                (mark, None)
            }
        }
    }
}
