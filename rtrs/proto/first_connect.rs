// SPDX-License-Identifier: GPL-2.0

//! The retries of a path's first connect, while the task that adds the path waits.
//!
//! Two failures may be transient. The kernel sends three requests for a neighbour's address, a
//! second apart, and none until the timeout of the resolution (`addr_resolve()`): an address that
//! is resolved before its link is up is not found for the rest of that time. So a resolution has a
//! short timeout and is repeated. A server at its memory limit (`ENOMEM`) may be ending other
//! sessions, for instance one that this client has just closed.

use super::CONNECT_TIMEOUT_MS;

/// The timeout of one resolution of the peer's address, in milliseconds: the kernel's three
/// requests and a margin.
const ADDRESS_MS: u32 = 4000;

/// The delay before the first retry after `ENOMEM`, in milliseconds; it doubles with each retry.
const MEMORY_PAUSE_MS: u32 = 200;

/// The number of retries after `ENOMEM`: 3 s in total, longer than a server takes to end a session.
const MEMORY_ROUNDS: u32 = 4;

/// The reason why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer's address was not found in time.
    NoAddress,
    /// The server has no memory for the path.
    NoMemory,
    /// Another reason, which is final.
    Other,
}

/// The attempts of one path's first connect.
#[derive(Clone, Copy, Debug)]
pub struct FirstConnect {
    /// The time left to resolve the address, in milliseconds.
    address_ms: u32,
    /// The number of `ENOMEM` rejections.
    no_memory: u32,
}

impl FirstConnect {
    /// The state of a path without attempts.
    pub const UNTRIED: Self = Self {
        address_ms: CONNECT_TIMEOUT_MS,
        no_memory: 0,
    };

    /// Returns the timeout of the next attempt's address resolution, in milliseconds; not 0.
    pub const fn address_ms(&self) -> u32 {
        if self.address_ms < ADDRESS_MS {
            self.address_ms
        } else {
            ADDRESS_MS
        }
    }

    /// Counts an attempt that failed after `took_ms` milliseconds. Returns the delay before the
    /// next one, in milliseconds, or `None` if there is none.
    pub const fn failed(&mut self, failure: Failure, took_ms: u32) -> Option<u32> {
        match failure {
            Failure::NoAddress => {
                // At least the granted time, independent of the clock, so that the attempts end.
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
