// SPDX-License-Identifier: GPL-2.0

//! Counts of what a queue pair has done.

use core::fmt;

/// A counter of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Calls that post sends; each may bring a list of them.
    SendDoorbells,
    /// Calls that post receives.
    ReceiveDoorbells,
    /// Posted sends.
    Sends,
    /// Posted sends that invalidate a key of the peer.
    SendsWithInvalidate,
    /// Posted RDMA writes.
    Writes,
    /// Posted RDMA writes with immediate data.
    WritesWithImmediate,
    /// Posted RDMA reads.
    Reads,
    /// Posted invalidations of own keys.
    Invalidations,
    /// Posted registrations.
    Registrations,
    /// Posted receives.
    Receives,
    /// The bytes of posted sends, RDMA writes and RDMA reads.
    Bytes,
    /// Completions in the queue for sends.
    SendCompletions,
    /// Completions in the queue for receives.
    ReceiveCompletions,
    /// Completions for which the consumer was notified.
    Events,
}

/// The names of the counters, in their order.
pub const NAMES: [&str; 14] = [
    "send_doorbells",
    "receive_doorbells",
    "sends",
    "sends_with_invalidate",
    "writes",
    "writes_with_immediate",
    "reads",
    "invalidations",
    "registrations",
    "receives",
    "bytes",
    "send_completions",
    "receive_completions",
    "events",
];

/// The counters of a queue pair, or the sum of those of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; NAMES.len()]);

impl Counts {
    /// Adds `count` to a counter.
    pub fn add(&mut self, counter: Counter, count: u64) {
        // CAST: The enumeration has as many values as there are names.
        if let Some(value) = self.0.get_mut(counter as usize) {
            *value = value.saturating_add(count);
        }
    }

    /// Returns a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        // CAST: As above.
        self.0.get(counter as usize).copied().unwrap_or(0)
    }

    /// Adds those of another queue pair.
    pub fn add_all(&mut self, other: &Self) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(value);
        }
    }
}

/// The numbers in the order of [`NAMES`].
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{value}")?;
        }
        Ok(())
    }
}
