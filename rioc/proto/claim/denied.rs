// SPDX-License-Identifier: GPL-2.0

//! The reasons why a claim is refused.

use ferro_proto::errno::Errno;

/// The reason why a claim is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A lease excludes it.
    Leased,
    /// The lease that it names has ended.
    LeaseGone,
    /// The lease that it names is of other bytes.
    LeaseElsewhere,
    /// The memory for claims is used up.
    NoClaims,
}

impl Denied {
    /// Returns the error that the client gets.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Leased => Errno::EBUSY,
            Self::LeaseGone => Errno::ESTALE,
            Self::LeaseElsewhere => Errno::EINVAL,
            Self::NoClaims => Errno::ENOMEM,
        }
    }
}
