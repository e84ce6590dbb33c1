// SPDX-License-Identifier: GPL-2.0

//! One request in flight and what it owns until it ends.

use kernel::prelude::*;
use rdma::{
    Mr,
    RemoteAddr, //
};
use rtrs_core::proto::{
    failover::Resent,
    info::RemoteChunk,
    invalidation::Keys, //
};

use crate::client::io::{
    postponed::{
        HasSending,
        Sending, //
    },
    read_buffers::ReadBuffer,
    transfer::AnyTransfer, //
};

/// The mapping of a request's data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataMapping {
    /// The request has no data.
    None,
    /// A write of few pieces: by their DMA addresses, local access only. It ends when both the
    /// send's completion and the response have come.
    Sges,
    /// A write by the key of the region, local access only. The key stays valid until the region
    /// is registered again. It ends as [`Self::Sges`] does.
    FastReg,
    /// A read by the key of the region. It ends when the key is invalid.
    FastRegRead,
    /// A read into its buffer, from which the data are copied. Nothing is mapped. It ends with the
    /// response.
    Copied,
}

impl DataMapping {
    /// Returns whether the request's list is mapped for the device.
    #[inline(always)]
    pub(crate) fn is_mapped(self) -> bool {
        matches!(self, Self::Sges | Self::FastReg | Self::FastRegRead)
    }
}

/// One sending of a request.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    /// The number of times that it was sent on other paths before.
    pub(crate) resent: Resent,
    /// The path counts it, for the policy that chose the path.
    pub(crate) is_counted: bool,
}

impl Attempt {
    /// The first one, on a path that no policy has chosen by its requests.
    pub(crate) const FIRST: Self = Self {
        resent: Resent::NEVER,
        is_counted: false,
    };
}

/// The way in which a request was sent, as long as it is in flight: eight bytes, most of which are
/// constants where they are written.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// The connection on which it was sent; the response must come there, too.
    pub(crate) cid: u16,
    /// Bytes of the user message.
    pub(crate) usr_len: u16,
    pub(crate) attempt: Attempt,
    /// The message was a write; a request without data may be sent as either.
    pub(crate) is_write: bool,
    pub(crate) data: DataMapping,
}

const _: () = assert!(size_of::<Sent>() == 8);

impl Sent {
    /// The value of an entry that was not used yet.
    const NONE: Self = Self {
        cid: 0,
        usr_len: 0,
        attempt: Attempt::FIRST,
        is_write: false,
        data: DataMapping::None,
    };
}

/// The request context of one chunk.
///
/// The state of its [`Handoff`](kernel_ext::sync::Handoff): it is armed while the response is
/// awaited, which claims it. The completion of the send of a write's data signals it. Once the
/// response has come, it awaits the signal that is missing: that completion, or the invalidation
/// of our key.
pub(crate) struct InFlight {
    /// The server's chunk. Under `always_invalidate=Y` the key is valid for one request, and the
    /// response brings the next.
    pub(crate) chunk: RemoteChunk,
    /// The region, which is registered for each request that needs a key.
    pub(crate) mr: Mr,
    /// The use of its keys.
    pub(crate) keys: Keys,
    /// The buffer of a small read; `None` if no read is copied.
    pub(crate) buffer: Option<ReadBuffer>,
    /// The key of the region that is to be invalidated first: that of an earlier write.
    pub(crate) stale: Option<u32>,
    /// The life of the path ended while a request used the region: whether its last registration
    /// or invalidation was carried out is unknown.
    pub(crate) is_in_doubt: bool,
    /// The request's memory, while it is in flight.
    pub(crate) transfer: Option<AnyTransfer>,
    pub(crate) sent: Sent,
    /// Bytes of a read's data that come with the response: its tail.
    pub(crate) tail_len: u32,
    /// The server was asked to invalidate the key of the read, and can be believed.
    pub(crate) is_asked: bool,
    /// The last sending with a key that the server uses.
    pub(crate) sending: Sending,
    /// The clock when the request was sent, of a read by the key of the region.
    pub(crate) sent_at: u64,
    /// The result of the response, once it has come.
    pub(crate) result: Result,
}

impl InFlight {
    pub(crate) fn new(mr: Mr) -> Self {
        Self {
            chunk: RemoteChunk { addr: 0, rkey: 0 },
            mr,
            keys: Keys::NEW,
            buffer: None,
            stale: None,
            is_in_doubt: false,
            transfer: None,
            sent: Sent::NONE,
            tail_len: 0,
            is_asked: false,
            sending: Sending::NONE,
            sent_at: 0,
            result: Ok(()),
        }
    }

    /// Begins a request that is sent in this way; `tail_len` bytes of its data come with the
    /// response. Returns the number of the last sending with a key that the server uses.
    #[inline(always)]
    pub(crate) fn begin(&mut self, sent: Sent, tail_len: u32) -> u32 {
        self.sent = sent;
        match sent.data {
            DataMapping::FastReg => self.stale = Some(self.mr.key()),
            DataMapping::FastRegRead => {
                self.sending.next();
                self.stale = None;
                self.tail_len = tail_len;
            }
            DataMapping::Sges | DataMapping::Copied | DataMapping::None => {}
        }
        self.sending.number()
    }

    /// Returns the remote address of byte `offset` of the chunk.
    #[inline(always)]
    pub(crate) fn remote(&self, offset: u32) -> RemoteAddr {
        RemoteAddr {
            // The info response was checked: no chunk wraps round.
            addr: self.chunk.addr.wrapping_add(u64::from(offset)),
            key: self.chunk.rkey,
        }
    }
}

impl HasSending for InFlight {
    fn sending(&mut self) -> &mut Sending {
        &mut self.sending
    }
}
