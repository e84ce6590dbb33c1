// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair (InfiniBand architecture, 10.3.1), less those of a drained send
//! queue.

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Created; nothing may be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// All that is posted is flushed.
    Err,
}

impl QpState {
    /// Returns the state that `enum ib_qp_state` gives this number; [`None`] for those that the
    /// device does not have.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::Rtr),
            3 => Some(Self::Rts),
            6 => Some(Self::Err),
            _ => None,
        }
    }

    /// Returns the number in `enum ib_qp_state`.
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Reset => 0,
            Self::Init => 1,
            Self::Rtr => 2,
            Self::Rts => 3,
            Self::Err => 6,
        }
    }

    /// Returns whether the consumer may move a queue pair from this state to `next`.
    pub const fn may_become(self, next: Self) -> bool {
        match next {
            Self::Reset | Self::Err => true,
            Self::Init => matches!(self, Self::Reset | Self::Init),
            Self::Rtr => matches!(self, Self::Init),
            Self::Rts => matches!(self, Self::Rtr | Self::Rts),
        }
    }

    /// Returns whether a send may be posted.
    pub const fn takes_sends(self) -> bool {
        matches!(self, Self::Rts | Self::Err)
    }

    /// Returns whether a receive may be posted.
    pub const fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Returns whether messages of the peer are executed.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts)
    }
}
