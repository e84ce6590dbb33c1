// SPDX-License-Identifier: GPL-2.0

//! One request in flight: what it owns until its end.

use kernel::prelude::*;
use rdma::{
    Mr,
    Remote, //
};
use rtrs_core::proto::info::RemoteChunk;

use crate::transfer::{
    AnyTransfer,
    Direction, //
};

/// How far a request has come.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// Sent; neither the response nor, where one was asked for, the send's completion has come.
    Sent,
    /// The send is complete; the server has all the data.
    Acknowledged,
    /// The response has come, the send's completion has not: the device may still read the data
    /// for a retransmission.
    Answered(Result),
    /// The response has come, and our key is being invalidated.
    Invalidating(Result),
}

/// How the request's data is reached over the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// It has none.
    None,
    /// By its DMA address, and by us only: a write of one piece. It ends with the send's completion
    /// and the response, whichever comes last.
    Direct,
    /// By the key of the region. It ends when the key is invalid again, which is not asked for
    /// before the data has been sent.
    Registered,
}

/// What stands in the place of one chunk.
pub(crate) struct InFlight {
    /// Where the chunk is. Under `always_invalidate=Y` the key is good for one request, and the
    /// response brings the next.
    pub(crate) chunk: RemoteChunk,
    /// The region that is registered anew for each request.
    pub(crate) mr: Mr,
    /// The request's memory, from its submission to its end.
    pub(crate) transfer: Option<AnyTransfer>,
    pub(crate) stage: Stage,
    pub(crate) data: Data,
    pub(crate) direction: Direction,
    /// The connection that it went out on; its answer must come there, too.
    pub(crate) cid: u16,
    /// Bytes of the user message.
    pub(crate) usr_len: u16,
    /// How often it was sent on other paths before.
    pub(crate) resent: u8,
}

impl InFlight {
    pub(crate) fn new(mr: Mr) -> Self {
        Self {
            chunk: RemoteChunk { addr: 0, rkey: 0 },
            mr,
            transfer: None,
            stage: Stage::Sent,
            data: Data::None,
            direction: Direction::Read,
            cid: 0,
            usr_len: 0,
            resent: 0,
        }
    }

    /// Returns where byte `offset` of the chunk is.
    #[inline(always)]
    pub(crate) fn remote(&self, offset: u32) -> Remote {
        Remote {
            // The info response was checked: no chunk wraps round.
            addr: self.chunk.addr.wrapping_add(u64::from(offset)),
            key: self.chunk.rkey,
        }
    }
}
