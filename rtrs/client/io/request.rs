// SPDX-License-Identifier: GPL-2.0

//! One request in flight: what it owns until its end.

use kernel::prelude::*;
use rdma::{
    Mr,
    RemoteAddr, //
};
use rtrs_core::proto::info::RemoteChunk;

use crate::client::io::transfer::{
    AnyTransfer,
    Direction, //
};

/// How the request's data is reached over the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataMapping {
    /// It has none.
    None,
    /// A write of few pieces: by their DMA addresses, and by us only. It ends with the send's
    /// completion and the response, whichever comes last.
    Sges,
    /// A write by the key of the region, which is for us only, too, and stays valid until the
    /// region is used again. It ends likewise.
    FastReg,
    /// A read by the key of the region. It ends when the key is invalid again.
    FastRegRead,
}

impl DataMapping {
    /// Which way the data goes.
    #[inline(always)]
    pub(crate) fn direction(self) -> Option<Direction> {
        match self {
            DataMapping::None => None,
            DataMapping::Sges | DataMapping::FastReg => Some(Direction::Write),
            DataMapping::FastRegRead => Some(Direction::Read),
        }
    }
}

/// [`InFlight::resent`] of a request that the upper layer has made anew, in the chunk in which it
/// was lost.
pub(crate) const REMADE: u8 = u8::MAX;

/// What stands in the place of one chunk.
///
/// Its [`Handoff`](kernel_ext::sync::Handoff) says how far the request has come: it is armed while
/// the response is awaited, which is claimed; the completion of the send of a write's data is
/// noted; and once the response has come, it waits for the note of what is left: that completion,
/// or the invalidation of our key.
pub(crate) struct InFlight {
    /// Where the chunk is. Under `always_invalidate=Y` the key is good for one request, and the
    /// response brings the next.
    pub(crate) chunk: RemoteChunk,
    /// The region that is registered anew for each request that needs a key.
    pub(crate) mr: Mr,
    /// The key of the region that is to be made invalid first: that of an earlier write.
    pub(crate) stale: Option<u32>,
    /// The life of the path ended while a request used the region: nobody knows whether its last
    /// registration or invalidation was carried out.
    pub(crate) is_in_doubt: bool,
    /// The request's memory, from its submission to its end.
    pub(crate) transfer: Option<AnyTransfer>,
    pub(crate) data: DataMapping,
    /// The response, once it has come.
    pub(crate) result: Result,
    /// The connection that it went out on; its answer must come there, too.
    pub(crate) cid: u16,
    /// Which kind of message it went out with; one without data may be of either.
    pub(crate) is_write: bool,
    /// Bytes of the user message.
    pub(crate) usr_len: u16,
    /// How often it was sent on other paths before, or [`REMADE`].
    pub(crate) resent: u8,
}

impl InFlight {
    pub(crate) fn new(mr: Mr) -> Self {
        Self {
            chunk: RemoteChunk { addr: 0, rkey: 0 },
            mr,
            stale: None,
            is_in_doubt: false,
            transfer: None,
            data: DataMapping::None,
            result: Ok(()),
            cid: 0,
            is_write: false,
            usr_len: 0,
            resent: 0,
        }
    }

    /// A request begins whose data is reached in this way.
    #[inline(always)]
    pub(crate) fn begin(&mut self, data: DataMapping) {
        self.data = data;
        match data {
            DataMapping::FastReg => self.stale = Some(self.mr.key()),
            DataMapping::FastRegRead => self.stale = None,
            DataMapping::Sges | DataMapping::None => {}
        }
    }

    /// Returns where byte `offset` of the chunk is.
    #[inline(always)]
    pub(crate) fn remote(&self, offset: u32) -> RemoteAddr {
        RemoteAddr {
            // The info response was checked: no chunk wraps round.
            addr: self.chunk.addr.wrapping_add(u64::from(offset)),
            key: self.chunk.rkey,
        }
    }
}
