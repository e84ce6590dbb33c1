// SPDX-License-Identifier: GPL-2.0

//! Decides how long connections to a gfsd are kept that no open file uses: a gfsd has a process of
//! several megabytes for each.

/// A connection ends that is not used for so many times as long as the others of its gfsd, if it is
/// the only one: who reads a file now and then does not log in each time.
const LAST_IS_KEPT: u64 = 10;

/// Returns for how long a connection is kept that is not used, one of `count` to its gfsd, in
/// milliseconds; `timeout_s` is the setting.
pub fn kept_ms(count: usize, timeout_s: u32) -> u64 {
    let kept_ms = u64::from(timeout_s).saturating_mul(1000);
    match count {
        0 | 1 => kept_ms.saturating_mul(LAST_IS_KEPT),
        _ => kept_ms,
    }
}

/// The action for a connection that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The connection is closed.
    End,
    /// The connection is looked at again.
    Keep {
        /// The time until then, in milliseconds.
        left_ms: u64,
    },
}

/// Decides about a connection that is not used since `since_ms`, one of `count` to its gfsd.
pub fn decide(count: usize, since_ms: u64, now_ms: u64, timeout_s: u32) -> Idle {
    let left_ms = since_ms
        .saturating_add(kept_ms(count, timeout_s))
        .saturating_sub(now_ms);
    match left_ms {
        0 => Idle::End,
        left_ms => Idle::Keep { left_ms },
    }
}
