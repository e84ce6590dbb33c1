// SPDX-License-Identifier: GPL-2.0

//! How often the first connect of a path is repeated, while the task that wants the path waits.
//!
//! Two failures may be over soon. The kernel asks for a neighbour's address three times, a second
//! apart, and then not before the time of the resolution is over (`addr_resolve()`): one that is
//! asked for before its link is up is not found for the rest of that time. So a resolution is short
//! and repeated. A server whose memory is used up (`ENOMEM`) may be about to end other sessions,
//! for instance the one that this client has just left.

use super::CONNECT_TIMEOUT_MS;

/// Time for one resolution of the peer's address, in milliseconds: the kernel's three questions and
/// some more.
const ADDRESS_MS: u32 = 4000;

/// Pause before the server's memory is asked for again, in milliseconds; each is twice as long as
/// the one before.
const MEMORY_PAUSE_MS: u32 = 200;

/// How often it is asked again: 3 s in all, longer than a server takes to end a session.
const MEMORY_ROUNDS: u32 = 4;

/// Why an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer's address was not found in time.
    NoAddress,
    /// The server has no memory for the path.
    NoMemory,
    /// Anything else: it is final.
    Other,
}

/// The attempts of one path's first connect.
#[derive(Clone, Copy, Debug)]
pub struct FirstConnect {
    /// Time left to find the address, in milliseconds.
    address_ms: u32,
    /// How often the server has had no memory.
    no_memory: u32,
}

impl FirstConnect {
    /// Those of a path that has not been tried yet.
    pub const UNTRIED: Self = Self {
        address_ms: CONNECT_TIMEOUT_MS,
        no_memory: 0,
    };

    /// Returns how long the next attempt may look for the address, in milliseconds; not 0.
    pub const fn address_ms(&self) -> u32 {
        if self.address_ms < ADDRESS_MS {
            self.address_ms
        } else {
            ADDRESS_MS
        }
    }

    /// Notes that an attempt has failed after `took_ms` milliseconds. Returns the pause before the
    /// next one, in milliseconds, or `None` if there is none.
    pub const fn failed(&mut self, failure: Failure, took_ms: u32) -> Option<u32> {
        match failure {
            Failure::NoAddress => {
                // At least the time that was granted, whatever the clock says: this ends.
                let granted = self.address_ms();
                let spent = if took_ms > granted { took_ms } else { granted };
                self.address_ms = self.address_ms.saturating_sub(spent);
                if self.address_ms == 0 {
                    None
                } else {
                    Some(0)
                }
            }
            Failure::NoMemory if self.no_memory < MEMORY_ROUNDS => {
                let pause_ms = MEMORY_PAUSE_MS << self.no_memory;
                self.no_memory += 1;
                Some(pause_ms)
            }
            Failure::NoMemory | Failure::Other => None,
        }
    }
}
