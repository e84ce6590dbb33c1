// SPDX-License-Identifier: GPL-2.0

//! The validation of a path that connects while others are connected: whether it leads to the same
//! server, and which devices the server has closed.
//!
//! A path may lead to a restarted server, which has other numbers for the devices. It may also lead
//! to the same server, on which an administrator has closed a device (`force_close`) to fence this
//! client. The protocol has one message for both, OPEN: a server that has the device open for the
//! session returns its number, another one opens it. Servers do not reuse a number after
//! `force_close`, so a fenced device gets another one.
//!
//! - If all devices have their old numbers, requests for them are safe there.
//! - Otherwise the client sends the same messages on the other paths. The same server gives the
//!   same answers there: each device is open under the number just returned, or rejected again. It
//!   has closed these devices: each stays fenced until `remap_device` is written. Any other answer
//!   means two servers. That some devices have their old numbers shows nothing: a restarted server
//!   may give a number again by chance.
//! - Without an answer, here or there, the path is tried again later: a disk may be silent, or the
//!   other path be lost, which its heartbeats notice.
//!
//! The client closes again the devices that the validation opened on the same server. Elsewhere
//! they are closed with the session. If an outage has begun since, the answers say nothing about
//! the server of now, and the devices are open there on purpose, perhaps with the numbers of the
//! validation: nothing is closed, and the path is tried again.

use ferro_proto::errno::Errno;

/// Errors of OPEN that the client generates: no connection, a timeout, no memory, a signal.
const NOT_ITS_WORD: [u16; 6] = [
    // EINTR, EAGAIN, ENOMEM, ETIMEDOUT and ERESTARTSYS.
    4,
    11,
    Errno::ENOMEM.get(),
    Errno::ECONNABORTED.get(),
    110,
    512,
];

/// The answer of a server to OPEN of a device that should be open there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The device is open, under the old number.
    Same,
    /// The server has opened the device, under this number.
    Opened(u32),
    /// The server has rejected the device.
    Refused,
    /// No answer came.
    Missing,
}

impl Answer {
    /// Classifies the result of OPEN for a device whose requests use `number`.
    pub fn new(number: u32, opened: Result<u32, Errno>) -> Self {
        match opened {
            Ok(id) if id == number => Self::Same,
            Ok(id) => Self::Opened(id),
            Err(errno) if NOT_ITS_WORD.contains(&errno.get()) => Self::Missing,
            Err(_) => Self::Refused,
        }
    }

    /// Returns whether this answer on the new path, and `others` on the other paths, can come from
    /// a single server that has closed devices; `None` if that is not known, as no answer came.
    pub fn is_of_the_server_that_says(self, others: Answer) -> Option<bool> {
        match (self, others) {
            (Self::Missing, _) | (_, Self::Missing) => None,
            (Self::Opened(new), Self::Opened(old)) => Some(new == old),
            (Self::Same, Self::Same) | (Self::Refused, Self::Refused) => Some(true),
            _ => Some(false),
        }
    }
}

/// The result of the answers for all devices of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Requests for all devices are safe there.
    SameServer,
    /// The server may be another one: the client must ask on the other paths, too.
    AskOthers,
    /// The server is not known yet.
    TryLater,
}

/// The answers to a validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathValidation {
    has_closed: bool,
    has_missing: bool,
}

impl PathValidation {
    /// Adds the answer for a further device.
    #[must_use]
    pub fn with(mut self, answer: Answer) -> Self {
        match answer {
            Answer::Same => {}
            Answer::Opened(_) | Answer::Refused => self.has_closed = true,
            Answer::Missing => self.has_missing = true,
        }
        self
    }

    /// Returns the result of the answers.
    pub const fn verdict(self) -> Verdict {
        if self.has_missing {
            Verdict::TryLater
        } else if self.has_closed {
            Verdict::AskOthers
        } else {
            // Without a device, another server makes no difference.
            Verdict::SameServer
        }
    }
}
