// SPDX-License-Identifier: GPL-2.0

//! The credit of a send queue: how many answers a server's connection may have posted.
//!
//! Each answer, and each heartbeat, gets a number when room for it is reserved, after which it is
//! always posted. Each `interval`th is signaled; its completion says that it and those before it
//! are done. `interval <= room`, so whenever no room is left a completion is outstanding.
//!
//! The two counters are free-running and the caller's, which changes them atomically.

use super::signal;

/// The room on one send queue, counted in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    room: u32,
    /// The interval less 1, which is a power of two.
    mask: u32,
}

/// The room for one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The new number of answers that have begun.
    pub begun: u32,
    /// Its completion is requested.
    pub is_signaled: bool,
}

impl Credit {
    /// Returns the credit of a queue with room for `room` answers, of a session with this queue
    /// depth.
    pub const fn new(room: u32, queue_depth: u16) -> Self {
        let room = if room == 0 { 1 } else { room };
        let mut mask = signal::interval_mask(queue_depth);
        while mask >= room {
            mask /= 2;
        }
        Self { room, mask }
    }

    /// Reserves room for one answer, when `begun` have begun and `done` of them are known to be
    /// done; returns `None` if there is no room.
    #[inline(always)]
    pub const fn reserve(&self, begun: u32, done: u32) -> Option<Reserved> {
        if begun.wrapping_sub(done) >= self.room {
            return None;
        }
        let begun = begun.wrapping_add(1);
        Some(Reserved {
            begun,
            is_signaled: begun & self.mask == 0,
        })
    }

    /// Returns the number of answers that the completion of a signaled one shows to be done.
    #[inline]
    pub const fn interval(&self) -> u32 {
        self.mask.wrapping_add(1)
    }
}
