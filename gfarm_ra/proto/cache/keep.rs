// SPDX-License-Identifier: GPL-2.0

//! A request that a holder keeps until it has the pages itself.
//!
//! The holder repeats at times that it waits, so the node that has asked knows a holder that is
//! lost from one that waits for a slow file server.

use super::{
    reply::Answer,
    requester::READ_US_MAX, //
};

/// The time after which a holder that keeps a request is lost if it is silent, in milliseconds.
pub const KEEP_MS: u16 = 100;

/// The time between two repetitions, in microseconds: one of them may be lost.
const REPEAT_US: u64 = KEEP_MS as u64 * 1000 / 3;

/// The action for a request that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing is to be done before this time, in microseconds.
    Until(u64),
    /// Send this, and look again at the time, in microseconds.
    Say(Answer, u64),
    /// Forget it: the reader has gone to the file server.
    Forget,
}

/// The times of a request that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    next_us: u64,
    end_us: u64,
}

impl Keep {
    /// Starts at the time when the request has come.
    pub const fn new(now_us: u64) -> Self {
        Self {
            next_us: now_us,
            end_us: now_us.saturating_add(READ_US_MAX),
        }
    }

    /// Looks what is to be done. `depth` is the number of nodes for which this one waits in a row:
    /// 0 if for the file server, else one more than it was told last.
    pub const fn look(&mut self, now_us: u64, depth: u8) -> Kept {
        if now_us >= self.end_us {
            return Kept::Forget;
        }
        if now_us < self.next_us {
            return Kept::Until(self.next_us);
        }
        self.next_us = now_us.saturating_add(REPEAT_US);
        let wait_ms = KEEP_MS;
        Kept::Say(Answer::Wait { wait_ms, depth }, self.next_us)
    }
}
