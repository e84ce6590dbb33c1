// SPDX-License-Identifier: GPL-2.0

//! The sizes of a session's requests, which every path of the session must support.
//!
//! While a session is being opened it takes the minimum of what its paths grant. Then the sizes are
//! fixed: the upper layer has announced them to its users, and requests of these sizes may wait
//! during an outage. A path is not used while its server, after a change of its configuration,
//! grants less; requests wait until it grants enough again. A larger grant changes nothing.

use super::handshake::ConnectError;

/// The page size of memory registrations.
const REGISTERED_PAGE: u32 = 4096;

/// Pages of a registration that a request touches besides those that its size has.
pub const PAGES_BESIDE: u16 = 2;

/// The sizes of requests that a path supports, limited by the server and the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number of chunks of the server.
    pub queue_depth: u16,
    /// The maximum number of data bytes of a request.
    pub max_io_size: u32,
    /// The maximum number of segments of a request.
    pub max_segments: u16,
}

impl Grant {
    /// Returns what a path supports whose server has `queue_depth` chunks for `chunk_data` bytes of
    /// data each, and whose adapter registers up to `pages` pages at a time.
    ///
    /// A registration has no gaps: only its first segment may begin inside a page, and only its
    /// last may end there. So segments of a request are registered together only if the adapter
    /// `keeps_page_offsets`: bounce buffers may have others than the memory that they stand for.
    ///
    /// A request that begins inside a page touches one page more than its size has, however few its
    /// segments are: a piece of a huge page is one. The upper layer may have another page behind
    /// the data: tuples of protection information.
    pub fn new(queue_depth: u16, chunk_data: u32, pages: u16, keeps_page_offsets: bool) -> Self {
        let whole = pages.saturating_sub(PAGES_BESIDE);
        let registered = u32::from(whole).saturating_mul(REGISTERED_PAGE);
        Self {
            queue_depth,
            max_io_size: chunk_data.min(registered),
            max_segments: if keeps_page_offsets {
                whole
            } else {
                whole.min(1)
            },
        }
    }
}

/// The agreement of a session with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// No path has been accepted yet.
    Nothing,
    /// The session is being opened: no requests exist, and paths may grant less.
    Opening(Grant),
    /// The session is open: requests have these sizes.
    Settled(Grant),
}

impl Agreement {
    /// Returns the agreement after a path was granted `new`.
    ///
    /// # Errors
    ///
    /// Returns an error if the session cannot use the path.
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
        if new.max_io_size < known.max_io_size || new.max_segments < known.max_segments {
            return Err(ConnectError::SmallerRequests {
                granted: new.max_io_size,
                needed: known.max_io_size,
            });
        }
        Ok(self)
    }

    /// Returns the agreement of an open session, whose sizes are fixed.
    #[must_use]
    pub fn settled(self) -> Self {
        match self {
            Self::Opening(grant) => Self::Settled(grant),
            other => other,
        }
    }

    /// Returns the sizes of requests; `None` before the first path was accepted.
    pub const fn grant(&self) -> Option<Grant> {
        match self {
            Self::Nothing => None,
            Self::Opening(grant) | Self::Settled(grant) => Some(*grant),
        }
    }
}
