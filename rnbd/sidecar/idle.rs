// SPDX-License-Identifier: GPL-2.0

//! Rest of a device: for how long nothing has changed it, and what is done then.
//!
//! A record names what was flushed before it, and damage of the newest one is not seen. So a mark
//! follows when nothing else does. Some seconds later the tuples are written back and the journal
//! is emptied: after a crash there is nothing to replay then, and a write that the device has
//! lost is an error.

use super::store::Rest;

/// The time between two ticks.
pub const TICK_MS: u32 = 1000;

/// The whole ticks without a change before a mark is written.
const PAUSE_TICKS: u8 = 1;
/// The whole ticks without a change before the journal is emptied.
const DRAIN_TICKS: u8 = 6;

/// The time for which a device has not been changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Idle {
    ticks: u8,
    has_worked: bool,
}

impl Idle {
    /// A request to change the device, or to flush it, has come.
    pub fn worked(&mut self) {
        *self = Self {
            ticks: 0,
            has_worked: true,
        };
    }

    /// [`TICK_MS`] have gone by since the last tick, or less since the clock was started.
    pub fn tick(&mut self) {
        if self.has_worked {
            self.has_worked = false;
        } else {
            self.ticks = self.ticks.saturating_add(1);
        }
    }

    /// Returns what is to be done.
    pub const fn rest(&self) -> Rest {
        match self.ticks {
            DRAIN_TICKS.. => Rest::Drain,
            PAUSE_TICKS.. => Rest::Pause,
            _ => Rest::None,
        }
    }
}
