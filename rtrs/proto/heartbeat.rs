// SPDX-License-Identifier: GPL-2.0

//! When to ask whether the peer is there, and when to stop believing it.

use super::{
    HEARTBEAT_INTERVAL_MS,
    HEARTBEAT_MISSED_MAX, //
};

/// How often to tick and how many ticks may pass unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time between two ticks, in milliseconds.
    pub interval_ms: u32,
    /// Ticks that may pass without a word from the peer; one more and the path is given up.
    pub missed_max: u32,
}

/// What a tick asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Send a heartbeat and tick again.
    Send,
    /// Only tick again: the last heartbeat is still unanswered.
    Wait,
    /// Give the path up; do not tick again.
    Dead,
}

impl Heartbeat {
    /// The protocol's: every 5 s, given up in the tick after 5 were missed.
    pub const DEFAULT: Self = Self {
        interval_ms: HEARTBEAT_INTERVAL_MS,
        missed_max: HEARTBEAT_MISSED_MAX,
    };

    /// Ours, unless set otherwise: every second, given up in the tick after 3 were missed. A silent
    /// peer is noticed in less than 5 s. A peer answers at once, so that asking more often than the
    /// protocol's other implementation does no harm to it.
    pub const CLIENT: Self = Self {
        interval_ms: 1000,
        missed_max: 3,
    };

    /// One tick. `missed` is the number of ticks since the peer was last heard; the first value is
    /// its new one. Whoever hears anything from the peer sets the number to 0.
    pub const fn tick(&self, missed: u32) -> (u32, Tick) {
        if missed > self.missed_max {
            return (missed, Tick::Dead);
        }
        let tick = if missed == 0 { Tick::Send } else { Tick::Wait };
        (missed.saturating_add(1), tick)
    }
}

/// Returns the latency that an acknowledgement shows, in nanoseconds and at least 1: 0 stands for
/// "not known" where the number is stored.
pub const fn latency_ns(sent_ns: u64, now_ns: u64) -> u64 {
    match now_ns.saturating_sub(sent_ns) {
        0 => 1,
        ns => ns,
    }
}
