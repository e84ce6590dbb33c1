// SPDX-License-Identifier: GPL-2.0

//! Which server a path leads to that comes up while others are up, and which devices it has closed.
//!
//! A path may lead to a server that was started anew, which has other numbers for the devices. It
//! may also lead to the same server, where an administrator has closed a device by force
//! (`force_close`) to keep this client from it. The protocol has one question for both, OPEN: a
//! server that has the device open for the session says its number, another one opens it. Servers
//! do not use a number again that they have closed by force, so a device that was fenced has
//! another one then.
//!
//! - A device that has its number shows that the server is the one of the other paths. Those that
//!   have not were closed there: each alone is lost, until somebody has it opened again.
//! - If none has its number, the other paths are asked the same question. The same server says the
//!   same there: it has opened each device under the number that it has just given, or refuses it
//!   as well. Any other answer, and none, is that of two servers.
//!
//! Who asks closes again what was opened by the question.

use ferro_proto::errno::Errno;

/// Errors of OPEN that are not the server's word: no connection, no time, no memory, a signal.
const NOT_ITS_WORD: [u16; 6] = [
    // EINTR, EAGAIN, ENOMEM, ETIMEDOUT and ERESTARTSYS.
    4,
    11,
    Errno::ENOMEM.get(),
    Errno::ECONNABORTED.get(),
    110,
    512,
];

/// What a server says when it is told to open a device that is believed to be open there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is, under that number.
    Same,
    /// It was not, and is now, under this number.
    Opened(u32),
    /// It was not, and is not.
    Refused,
    /// None: nothing is known.
    Missing,
}

impl Answer {
    /// Reads the answer to OPEN for a device that requests are made for with `number`.
    pub fn new(number: u32, opened: Result<u32, Errno>) -> Self {
        match opened {
            Ok(id) if id == number => Self::Same,
            Ok(id) => Self::Opened(id),
            Err(errno) if NOT_ITS_WORD.contains(&errno.get()) => Self::Missing,
            Err(_) => Self::Refused,
        }
    }

    /// Returns whether a device for which a new path gives this answer, and the other paths
    /// `others`, may be one that a single server has closed.
    pub fn is_of_the_server_that_says(self, others: Answer) -> bool {
        match (self, others) {
            (Self::Opened(new), Self::Opened(old)) => new == old,
            (Self::Refused, Self::Refused) => true,
            _ => false,
        }
    }
}

/// What the answers for all devices of a session show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server is the one of the other paths; it has closed the devices that do not have their
    /// numbers.
    SameServer,
    /// It may be another one: the others are to be asked, too.
    AskOthers,
    /// Nothing yet.
    TryLater,
}

/// The answers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    has_same: bool,
    has_closed: bool,
    has_missing: bool,
}

impl Survey {
    /// Adds the answer for one more device.
    #[must_use]
    pub fn with(mut self, answer: Answer) -> Self {
        match answer {
            Answer::Same => self.has_same = true,
            Answer::Opened(_) | Answer::Refused => self.has_closed = true,
            Answer::Missing => self.has_missing = true,
        }
        self
    }

    /// What they show.
    pub const fn verdict(self) -> Verdict {
        if self.has_missing {
            Verdict::TryLater
        } else if self.has_closed && !self.has_same {
            Verdict::AskOthers
        } else {
            // Without any device there is nothing that another server could have otherwise.
            Verdict::SameServer
        }
    }
}
