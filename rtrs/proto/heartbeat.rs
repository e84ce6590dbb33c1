// SPDX-License-Identifier: GPL-2.0

//! The heartbeat: when to send one, and when the path fails.

use super::{
    HEARTBEAT_INTERVAL_MS,
    HEARTBEAT_MISSED_MAX, //
};

/// The interval of ticks and the number of ticks that may pass unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The interval between two ticks, in milliseconds.
    pub interval_ms: u32,
    /// The number of ticks that may pass without a message of the peer; one more fails the path.
    pub missed_max: u32,
}

/// The action of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Send a heartbeat and tick again.
    Send,
    /// Tick again without a heartbeat: the last one is still unanswered.
    Wait,
    /// Fail the path; do not tick again.
    Dead,
}

impl Heartbeat {
    /// The values of the protocol: every 5 s, with failure in the tick after 5 missed ones.
    pub const DEFAULT: Self = Self {
        interval_ms: HEARTBEAT_INTERVAL_MS,
        missed_max: HEARTBEAT_MISSED_MAX,
    };

    /// The client's default: every second, with failure in the tick after 3 missed ones. A peer
    /// that does not answer is detected in less than 5 s. A peer acknowledges at once, so a shorter
    /// interval than that of the C driver does not affect it.
    pub const CLIENT: Self = Self {
        interval_ms: 1000,
        missed_max: 3,
    };

    /// Handles a tick. `missed` is the number of ticks since the last message of the peer; the
    /// first value returned is its new value. The receive handler sets the number to 0 for every
    /// message of the peer.
    pub const fn tick(&self, missed: u32) -> (u32, Tick) {
        if missed > self.missed_max {
            return (missed, Tick::Dead);
        }
        let tick = if missed == 0 { Tick::Send } else { Tick::Wait };
        (missed.saturating_add(1), tick)
    }
}

/// Returns the latency of an acknowledgement, in nanoseconds and at least 1: a stored 0 means "not
/// known".
pub const fn latency_ns(sent_ns: u64, now_ns: u64) -> u64 {
    match now_ns.saturating_sub(sent_ns) {
        0 => 1,
        ns => ns,
    }
}
