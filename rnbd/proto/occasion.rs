// SPDX-License-Identifier: GPL-2.0

//! Occasions on which a client opens a device on the server: how long it waits for the answer, and
//! which ids the message may take.

use rtrs_core::proto::permit::AnswerWaits;

use super::answer_time::AnswerTime;

/// Time for the answer to an admin message. RTRS detects a server that is down much earlier.
pub const ANSWER_MS: u32 = 60_000;

/// The reason why a client opens a device on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A user asks for it.
    Asked,
    /// An outage has ended. The client opens the devices one after the other, and those whose disk
    /// is silent again: no other is to wait for them for long, and the validation of a path is to
    /// have its turn in between.
    AfterOutage,
    /// A client asks a new path whether it leads to the server, which has the device open.
    NewPath,
}

impl Occasion {
    /// Returns what the answer may wait for.
    pub const fn waits(self) -> AnswerWaits {
        match self {
            Self::Asked | Self::AfterOutage => AnswerWaits::ForDevice,
            Self::NewPath => AnswerWaits::ForNothing,
        }
    }

    /// Returns the time for the answer, in milliseconds.
    pub const fn timeout_ms(self) -> u32 {
        match self {
            Self::AfterOutage => 3_000,
            Self::Asked | Self::NewPath => ANSWER_MS,
        }
    }

    /// Returns the time after which the server is to answer, so that the message's id is free,
    /// where a message may take `max_ms` at most.
    pub fn answer_time(self, max_ms: u32) -> Option<AnswerTime> {
        AnswerTime::within(self.timeout_ms().min(max_ms))
    }
}
