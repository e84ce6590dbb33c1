// SPDX-License-Identifier: GPL-2.0

//! What a session's requests are made for, and which servers can serve them.
//!
//! While a session is opened it takes the least that its paths grant. Then its requests are made
//! for that: the upper layer tells its users how long they may be, and some wait during an outage.
//! So a server that grants less later, having been configured anew, is not used, and requests wait
//! until it grants enough again. One that grants more changes nothing.

use super::handshake::ConnectError;

/// Size of the pages that memory is registered in.
const REGISTERED_PAGE: u32 = 4096;

/// What a path has for requests: the server's word, and the adapter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Chunks at the server.
    pub queue_depth: u16,
    /// Most bytes of data that a chunk takes.
    pub max_io_size: u32,
    /// Most pieces of data that the adapter registers.
    pub max_segments: u16,
}

impl Grant {
    /// Most bytes of data of one request.
    pub fn max_request(&self) -> u32 {
        let registered = u32::from(self.max_segments).saturating_mul(REGISTERED_PAGE);
        self.max_io_size.min(registered)
    }
}

/// What a session and its server have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// No path has been accepted yet.
    Nothing,
    /// The session is being opened: nobody makes requests, paths may grant less.
    Opening(Grant),
    /// Requests are made for this.
    Settled(Grant),
}

impl Agreement {
    /// What holds after a path was granted `new`.
    ///
    /// # Errors
    ///
    /// The path is of no use to the session.
    pub fn with(self, new: Grant) -> Result<Self, ConnectError> {
        let known = match self {
            Self::Nothing => return Ok(Self::Opening(new)),
            Self::Opening(known) | Self::Settled(known) => known,
        };
        if new.queue_depth != known.queue_depth {
            return Err(ConnectError::QueueDepthChanged(new.queue_depth));
        }
        if matches!(self, Self::Opening(_)) {
            return Ok(Self::Opening(Grant {
                queue_depth: known.queue_depth,
                max_io_size: new.max_io_size.min(known.max_io_size),
                max_segments: new.max_segments.min(known.max_segments),
            }));
        }
        if new.max_request() < known.max_request() || new.max_segments < known.max_segments {
            return Err(ConnectError::SmallerRequests {
                granted: new.max_request(),
                needed: known.max_request(),
            });
        }
        Ok(self)
    }

    /// Returns the session is open: requests are made from now on.
    #[must_use]
    pub fn settled(self) -> Self {
        match self {
            Self::Opening(grant) => Self::Settled(grant),
            other => other,
        }
    }

    /// What requests are made for; `None` before the first path was accepted.
    pub const fn grant(&self) -> Option<Grant> {
        match self {
            Self::Nothing => None,
            Self::Opening(grant) | Self::Settled(grant) => Some(*grant),
        }
    }
}
