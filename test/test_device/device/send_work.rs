// SPDX-License-Identifier: GPL-2.0

//! The work of a posted send.

use super::{
    mr::Mr,
    provider::TestDevice, //
};
use crate::proto::{
    counts::Counter,
    fault::Kind,
    key::Extent, //
};
use kernel::sync::Arc;
use verbs_provider::{
    Datagram,
    Operation, //
};

/// A posted send.
#[derive(Clone)]
pub(super) struct PostedSend {
    pub(super) id: u64,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) work: SendWork,
}

/// The work of a posted send.
#[derive(Clone)]
pub(super) enum SendWork {
    Send {
        imm: Option<u32>,
        invalidate: Option<u32>,
        datagram: Option<Datagram>,
    },
    Write {
        addr: u64,
        key: u32,
        imm: Option<u32>,
    },
    Read {
        addr: u64,
        key: u32,
    },
    Invalidate {
        key: u32,
    },
    Register {
        mr: Arc<Mr>,
        key: u32,
        access: u32,
        extent: Extent,
    },
}

impl SendWork {
    /// Returns what it is to a rule for faults.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Send { .. } => Kind::Send,
            Self::Write { .. } => Kind::Write,
            Self::Read { .. } => Kind::Read,
            Self::Invalidate { .. } => Kind::Invalidate,
            Self::Register { .. } => Kind::Register,
        }
    }

    /// Returns whether it changes keys.
    pub(super) fn changes_keys(&self) -> bool {
        match self {
            Self::Send { invalidate, .. } => invalidate.is_some(),
            Self::Invalidate { .. } | Self::Register { .. } => true,
            Self::Write { .. } | Self::Read { .. } => false,
        }
    }

    /// Returns whether a receive of the peer completes, and whether the bytes go there, if it is
    /// one of a connection that goes to the peer.
    pub(super) fn receive(&self) -> Option<(bool, bool)> {
        match self {
            Self::Send { datagram: None, .. } => Some((true, true)),
            Self::Write { imm, .. } => Some((imm.is_some(), false)),
            Self::Read { .. } => Some((false, false)),
            Self::Send { .. } | Self::Invalidate { .. } | Self::Register { .. } => None,
        }
    }

    /// Returns what counts it, and whether it moves bytes.
    pub(super) fn counter(&self) -> (Counter, bool) {
        match self {
            Self::Send {
                invalidate: Some(_),
                ..
            } => (Counter::SendsWithInvalidate, true),
            Self::Send { .. } => (Counter::Sends, true),
            Self::Write { imm: Some(_), .. } => (Counter::WritesWithImmediate, true),
            Self::Write { .. } => (Counter::Writes, true),
            Self::Read { .. } => (Counter::Reads, true),
            Self::Invalidate { .. } => (Counter::Invalidations, false),
            Self::Register { .. } => (Counter::Registrations, false),
        }
    }

    pub(super) fn new(operation: &Operation<'_, TestDevice>) -> Self {
        match *operation {
            Operation::Send {
                imm,
                invalidate,
                datagram,
            } => Self::Send {
                imm,
                invalidate,
                datagram,
            },
            Operation::Write { addr, key, imm } => Self::Write { addr, key, imm },
            Operation::Read { addr, key } => Self::Read { addr, key },
            Operation::Invalidate { key } => Self::Invalidate { key },
            Operation::Register {
                mr,
                key,
                access,
                extent,
            } => Self::Register {
                mr: mr.clone(),
                key,
                access,
                extent: Extent {
                    iova: extent.iova,
                    len: extent.len,
                    page_bytes: extent.page_bytes,
                },
            },
        }
    }
}
