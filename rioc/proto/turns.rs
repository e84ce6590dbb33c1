// SPDX-License-Identifier: GPL-2.0

//! The turns of requests, and of what a store does by itself.
//!
//! Requests wait for what was deleted, or cut, to be given back; so this goes on also beside
//! requests of others that never end.

/// The requests that take a step before what is left takes one.
const REQUESTS: u32 = 8;

/// The turns of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    requests: u32,
}

impl Turns {
    /// Whether what is left takes a step before the next request does.
    pub const fn is_due(&self) -> bool {
        self.requests >= REQUESTS
    }

    /// A request has taken a step.
    pub fn request(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// The rest has taken its step, or there is none.
    pub fn rest(&mut self) {
        self.requests = 0;
    }
}
