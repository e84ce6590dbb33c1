// SPDX-License-Identifier: GPL-2.0

//! The time after which a client wants an answer to its OPEN even if the device is silent.
//!
//! An OPEN has a chunk id of its session until it is answered. A client has few ids for OPEN, and
//! those of silent devices would use them up for as long as these are silent. So a client of this
//! project says how long it waits, and a server of this project answers with `ETIMEDOUT` then. The
//! server goes on opening the device: one that is slow, rather than silent, is open when it is
//! asked for again.

use core::num::NonZeroU8;

/// The time between two looks of a server for messages whose time is over, in milliseconds.
pub const LOOK_MS: u32 = 500;

/// The time that a client gives the server for the answer to an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTime {
    seconds: NonZeroU8,
}

impl AnswerTime {
    /// Returns the time for a client that gives up after `timeout_ms`: a second less, so that the
    /// answer comes before; `None` if that is nothing.
    pub const fn within(timeout_ms: u32) -> Option<Self> {
        let seconds = (timeout_ms / 1000).saturating_sub(1);
        // CAST: at most 255.
        let seconds = if seconds > 255 { 255 } else { seconds as u8 };
        Self::from_wire(seconds)
    }

    /// Parses the byte of an OPEN of a client that supports the extension; 0: it says nothing.
    pub const fn from_wire(raw: u8) -> Option<Self> {
        match NonZeroU8::new(raw) {
            Some(seconds) => Some(Self { seconds }),
            None => None,
        }
    }

    /// Returns the byte.
    pub const fn to_wire(answer_time: Option<Self>) -> u8 {
        match answer_time {
            Some(answer_time) => answer_time.seconds.get(),
            None => 0,
        }
    }

    /// Returns whether a message that came `waited_ms` ago is to be answered.
    pub const fn is_over(self, waited_ms: u64) -> bool {
        // CAST: widens.
        waited_ms >= self.seconds.get() as u64 * 1000
    }
}
