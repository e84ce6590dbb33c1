// SPDX-License-Identifier: GPL-2.0

//! Occasions on which a client opens a device on the server: how long it waits for the answer, how
//! often it asks, and which ids the message may take.
//!
//! A server of this project answers when the client waits no longer ([`answer_time`]), and goes on
//! opening the device. So a client asks it again and again rather than once for long: an OPEN holds
//! the admin lock of its session, and those of other devices, and the validations of paths, wait
//! for that.
//!
//! [`answer_time`]: super::answer_time

use rtrs_core::proto::{
    permit::AnswerWaits,
    timeouts::ONE_PATH_ANSWER_MS, //
};

use super::answer_time::AnswerTime;

/// Time for the answer to an admin message. RTRS detects a server that is down much earlier.
pub const ANSWER_MS: u32 = 60_000;

/// Time for the answer to an OPEN that is sent again. A message waits as long for its id, and both
/// together shorter than the validation of a path for the lock.
const AGAIN_MS: u32 = 2_000;

/// Time for the id of the question for a server's version, and for its answer, while the client has
/// the admin lock: the server answers it at once. If it does not, the client waits without the
/// lock.
pub const AGREE_MS: u32 = 400;

// A validation waits so long for the lock.
const _: () = assert!(2 * (AGREE_MS + AGAIN_MS) < ONE_PATH_ANSWER_MS);

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

    /// Returns the time for the answer, in milliseconds. `is_extended`: the server is one of this
    /// project, which answers in time.
    pub const fn timeout_ms(self, is_extended: bool) -> u32 {
        match self {
            Self::AfterOutage => AGAIN_MS,
            Self::Asked if is_extended => AGAIN_MS,
            Self::NewPath if is_extended => ONE_PATH_ANSWER_MS,
            Self::Asked | Self::NewPath => ANSWER_MS,
        }
    }

    /// Returns the time after which a server of this project is to answer, so that the message's id
    /// is free.
    pub const fn answer_time(self) -> Option<AnswerTime> {
        AnswerTime::within(self.timeout_ms(true))
    }

    /// Returns whether the client asks again that got `ETIMEDOUT` after `took_ms`, and has asked
    /// for `waited_ms`. One that comes earlier than that of a silent device is the device's own.
    pub const fn asks_again(self, took_ms: u64, waited_ms: u64) -> bool {
        // CAST: they widen.
        let was_silent = took_ms >= (AGAIN_MS - 1000) as u64;
        matches!(self, Self::Asked) && was_silent && waited_ms < ANSWER_MS as u64
    }
}
