// SPDX-License-Identifier: GPL-2.0

//! Limits how much waits at a time that no admission counts.
//!
//! A node sends as many requests beyond its share as it likes, and each is refused. To say so may
//! take the look-up of its address, up to a second, and so long the refusal has a worker and
//! memory. What comes while [`REFUSING_MAX`] wait is dropped: who asks hears nothing, and asks
//! elsewhere, as it does when a datagram is lost.

/// The requests of others that are kept at a time.
pub const KEEPING_MAX: u16 = 64;

/// The requests of others that are refused at a time.
pub const REFUSING_MAX: u16 = 64;

/// The number of those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    count: u16,
    count_max: u16,
}

impl Waiting {
    /// None of at most `count_max` waits.
    pub const fn new(count_max: u16) -> Self {
        Self {
            count: 0,
            count_max,
        }
    }

    /// One more is to wait; returns whether it may. It ends by [`end`](Self::end).
    pub fn begin(&mut self) -> bool {
        let has_room = self.count < self.count_max;
        if has_room {
            self.count = self.count.saturating_add(1);
        }
        has_room
    }

    /// One of those that wait has ended.
    pub fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}
