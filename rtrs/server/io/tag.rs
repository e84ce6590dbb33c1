// SPDX-License-Identifier: GPL-2.0

//! The tags of a connection's work requests.

/// The meaning of a tag.
///
/// All tags but those of invalidations are constants, so encoding and decoding need no state of the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// An empty receive.
    Receive,
    /// The send of an answer or a heartbeat.
    Io,
    /// A registration, which is never signaled and completes only when it fails.
    Register,
    /// The receive for the info request.
    InfoRequest,
    /// A work request of the info response that is signaled.
    Setup,
    /// The invalidation of the key of this chunk.
    Invalidate(u16),
}

/// The first tag of an invalidation: that of chunk 0.
const INVALIDATE: u32 = 5;

impl Tagged {
    /// The number of tags of receives, which are the first.
    pub(crate) const RECEIVES: u32 = 1;

    /// Returns the number of tags for `depth` chunks.
    pub(crate) const fn count(depth: u16) -> u32 {
        INVALIDATE.wrapping_add(depth as u32)
    }

    #[inline(always)]
    pub(crate) const fn encode(self) -> u32 {
        match self {
            Self::Receive => 0,
            Self::Io => 1,
            Self::Register => 2,
            Self::InfoRequest => 3,
            Self::Setup => 4,
            Self::Invalidate(id) => INVALIDATE.wrapping_add(id as u32),
        }
    }

    #[inline(always)]
    pub(crate) const fn decode(tag: u32) -> Self {
        match tag {
            0 => Self::Receive,
            1 => Self::Io,
            2 => Self::Register,
            3 => Self::InfoRequest,
            4 => Self::Setup,
            // CAST: a queue pair has the tags below `count`, of a u16.
            _ => Self::Invalidate(tag.wrapping_sub(INVALIDATE) as u16),
        }
    }
}
