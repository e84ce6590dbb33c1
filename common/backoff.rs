// SPDX-License-Identifier: GPL-2.0

//! How long to wait before a lost path is connected again, and when to leave it.
//!
//! The first attempt comes at once: most losses are over when they are noticed. The pause then
//! doubles up to `reconnect_delay`, and chance shortens it, so that the clients of a server that
//! comes back do not all knock together.

/// Pause before the second attempt, in milliseconds, and the least that `reconnect_delay` can be.
pub const DELAY_MS_MIN: u32 = 100;

/// Default of `reconnect_delay`, the longest pause, in milliseconds.
pub const DELAY_MS_DEFAULT: u32 = 1000;

/// Most that `reconnect_delay` can be, in milliseconds.
pub const DELAY_MS_MAX: u32 = 600_000;

/// `max_reconnect_attempts` of a path that is never left; also the default.
pub const ATTEMPTS_FOR_EVER: i32 = -1;

/// Doublings that take the shortest pause past the longest.
const DOUBLINGS_MAX: u32 = 13;

const _: () = assert!((DELAY_MS_MIN as u64) << DOUBLINGS_MAX > DELAY_MS_MAX as u64);

/// Counts the attempts since a path was last connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// No attempt was made yet.
    pub const NEW: Self = Self { attempts: 0 };

    /// Returns how many attempts were granted since the last success.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Grants another attempt, after the returned pause in milliseconds, or `None`: the path is to
    /// be closed.
    ///
    /// `delay_ms_max` is `reconnect_delay`, brought into its range if it is outside.
    /// `attempts_max` is `max_reconnect_attempts`; any negative number is for ever, 0 is none.
    /// `random` is any number; it picks a pause between half of what is due and all of it.
    pub const fn next(&mut self, delay_ms_max: u32, attempts_max: i32, random: u32) -> Option<u32> {
        if attempts_max >= 0 && self.attempts >= attempts_max.unsigned_abs() {
            return None;
        }
        let pause_ms = jittered(due_ms(self.attempts, delay_ms_max), random);
        self.attempts = self.attempts.saturating_add(1);
        Some(pause_ms)
    }

    /// The path is connected, or somebody asked for it: counting starts again.
    pub const fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// Returns the pause that is due after `attempts` attempts, before chance shortens it.
const fn due_ms(attempts: u32, delay_ms_max: u32) -> u32 {
    if attempts == 0 {
        return 0;
    }
    let limit_ms = if delay_ms_max < DELAY_MS_MIN {
        DELAY_MS_MIN
    } else if delay_ms_max > DELAY_MS_MAX {
        DELAY_MS_MAX
    } else {
        delay_ms_max
    };
    let doublings = attempts.wrapping_sub(1);
    if doublings >= DOUBLINGS_MAX {
        return limit_ms;
    }
    let pause_ms = DELAY_MS_MIN.wrapping_shl(doublings);
    if pause_ms < limit_ms {
        pause_ms
    } else {
        limit_ms
    }
}

/// Picks a number from `ms - ms / 2` to `ms`, both included.
const fn jittered(ms: u32, random: u32) -> u32 {
    let half = ms / 2;
    // At most 300,001 ways, so neither the product nor the sum overflows.
    let ways = (half as u64).wrapping_add(1);
    // CAST: Below `ways`.
    let less = (random as u64).wrapping_mul(ways).wrapping_shr(u32::BITS) as u32;
    ms.wrapping_sub(less)
}
