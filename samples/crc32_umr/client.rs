// SPDX-License-Identifier: GPL-2.0

//! The initiator: its connection, and what it does with it.

mod link;
pub(crate) mod run;

use kernel::{
    fmt,
    prelude::*, //
};
use kernel_ext::errno::{
    ECONNREFUSED,
    ENOTCONN,
    EPROTO, //
};

use crate::proto::{
    response::Status,
    Violation, //
};

/// The reason why the demonstration fails.
pub(crate) enum Trouble {
    /// The target has sent what no peer may send.
    Violation(Violation),
    /// The target has refused the connection, or is not there.
    NotConnected,
    /// The connection ended.
    Lost,
    /// The target did not do what was asked for.
    Refused {
        /// The first block of the request.
        block: u64,
        /// The status in the response.
        status: Status,
    },
    /// The data that were read have another checksum than the target says.
    Signature {
        /// The first block of the request.
        block: u64,
        /// The checksum of the target.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The data that were read are not those that belong there.
    Differs {
        /// The block.
        block: u64,
        /// The first byte in it.
        at: usize,
    },
    /// The adapter or this machine failed, or the target does not answer.
    Failed(&'static str, Error),
}

impl Trouble {
    /// Returns what `modprobe` says.
    pub(crate) fn errno(&self) -> Error {
        match self {
            Self::Violation(_) => EPROTO,
            Self::NotConnected => ECONNREFUSED,
            Self::Lost => ENOTCONN,
            Self::Refused {
                status: Status::Range,
                ..
            } => ERANGE,
            Self::Refused { .. } | Self::Signature { .. } | Self::Differs { .. } => EIO,
            Self::Failed(_, error) => *error,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => f.write_fmt(fmt!("the target has sent {violation}")),
            Self::NotConnected => f.write_str("no connection"),
            Self::Lost => f.write_str("the connection is lost"),
            Self::Refused { block, status } => f.write_fmt(fmt!("block {block}: {status}")),
            Self::Signature {
                block,
                stored,
                computed,
            } => f.write_fmt(fmt!(
                "block {block}: what was read has the checksum {computed:#010x}, and not {stored:#010x}"
            )),
            Self::Differs { block, at } => f.write_fmt(fmt!(
                "block {block}: byte {at} is not the one that belongs there"
            )),
            Self::Failed(what, error) => f.write_fmt(fmt!("{what}: {error:?}")),
        }
    }
}
