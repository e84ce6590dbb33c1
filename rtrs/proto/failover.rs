// SPDX-License-Identifier: GPL-2.0

//! The treatment of a client's request that was lost with its path.
//!
//! While another path is connected, the request is sent again on it as it was, if the upper layer
//! says that its message is still valid. A request that every path loses would be sent again for
//! ever, so there is a limit. Otherwise it goes back to the upper layer, which decides how long it
//! may wait.

/// The number of times that a request is sent again before it goes back to the upper layer, which
/// pauses a request that comes back often: it may be the reason why its paths are lost.
pub const RESENDS_MAX: u8 = 2;

/// The number of times that a request was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resent(u8);

impl Resent {
    /// Sent for the first time, or again in another chunk than the one in which it was lost.
    pub const NEVER: Self = Self(0);

    /// Submitted again by the upper layer, in the chunk in which it was lost.
    pub const REMADE: Self = Self(u8::MAX);

    /// Returns whether the request was lost in this chunk: its answer releases the chunk.
    #[inline(always)]
    pub const fn was_lost(self) -> bool {
        self.0 != Self::NEVER.0
    }

    /// Returns whether the driver itself sends it again, which is counted as a fail-over.
    #[inline(always)]
    pub const fn is_failover(self) -> bool {
        self.0 != Self::NEVER.0 && self.0 != Self::REMADE.0
    }

    /// Returns the number for a request that was lost on its path and is sent again on another one,
    /// if it `is_possible`; `None` if it goes back to the upper layer.
    pub const fn again(self, is_possible: bool) -> Option<Self> {
        let sent = if self.0 == Self::REMADE.0 { 0 } else { self.0 };
        if is_possible && sent < RESENDS_MAX {
            Some(Self(sent.wrapping_add(1)))
        } else {
            None
        }
    }
}
