// SPDX-License-Identifier: GPL-2.0

//! The delay before a lost connection is connected again, and the number of attempts.
//!
//! The first attempt follows at once, as most losses are over when they are noticed. The delay then
//! doubles up to `reconnect_delay`. Random jitter shortens it, so that the clients of a restarted
//! server do not all reconnect at the same time.

/// The delay before the second attempt, in milliseconds, and the minimum of `reconnect_delay`.
pub const DELAY_MS_MIN: u32 = 100;

/// The default of `reconnect_delay`, the maximum delay, in milliseconds.
pub const DELAY_MS_DEFAULT: u32 = 1000;

/// The maximum of `reconnect_delay`, in milliseconds.
pub const DELAY_MS_MAX: u32 = 600_000;

/// The value of `max_reconnect_attempts` for unlimited attempts, also the default.
pub const ATTEMPTS_FOR_EVER: i32 = -1;

/// The number of doublings after which the minimum delay exceeds the maximum.
const DOUBLINGS_MAX: u32 = 13;

const _: () = assert!((DELAY_MS_MIN as u64) << DOUBLINGS_MAX > DELAY_MS_MAX as u64);

/// The attempts since a path was last connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Backoff {
    attempts: u32,
}

crate::words!(struct Backoff { attempts });

impl Backoff {
    /// No attempt was made yet.
    pub const NEW: Self = Self { attempts: 0 };

    /// Returns the number of attempts granted since the last success.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Grants another attempt after the returned delay in milliseconds; with `None` the path is
    /// closed.
    ///
    /// `delay_ms_max` is `reconnect_delay`, clamped to its range. `attempts_max` is
    /// `max_reconnect_attempts`; a negative number is unlimited, 0 is none. `random` selects a
    /// delay between half of the due one and all of it.
    pub const fn next(&mut self, delay_ms_max: u32, attempts_max: i32, random: u32) -> Option<u32> {
        if attempts_max >= 0 && self.attempts >= attempts_max.unsigned_abs() {
            return None;
        }
        let pause_ms = jittered(due_ms(self.attempts, delay_ms_max), random);
        self.attempts = self.attempts.saturating_add(1);
        Some(pause_ms)
    }

    /// Restarts the count, when the path is connected or the administrator requests a reconnect.
    pub const fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// Returns the delay due after `attempts` attempts, before the jitter.
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

/// Selects a number from `ms - ms / 2` to `ms`, both included.
const fn jittered(ms: u32, random: u32) -> u32 {
    let half = ms / 2;
    // At most 300,001 values, so neither the product nor the sum overflows.
    let ways = (half as u64).wrapping_add(1);
    // CAST: Below `ways`.
    let less = (random as u64).wrapping_mul(ways).wrapping_shr(u32::BITS) as u32;
    ms.wrapping_sub(less)
}
