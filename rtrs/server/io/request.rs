// SPDX-License-Identifier: GPL-2.0

//! What serving one chunk of one path needs, allocated when the path is made: a request allocates
//! nothing.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    sync::BoxCell, //
};
use rdma::{
    Mr,
    PageMapping, //
};
use rtrs_core::proto::{
    request::{
        self,
        Malformed,
        Reply,
        Request,
        HEAD_MAX, //
    },
    wire, //
};

use crate::server::path::connections::Connections;

/// Longest user message that is kept in the slot itself: RNBD's for reads and writes.
const USER_USUAL: usize = 32;

/// The one request that a chunk can carry on one path.
///
/// At rest it is parked in its [`ChunkState`]; while its request is in flight it belongs to whoever
/// works on the request. A chunk whose slot is not at home is busy.
///
/// There is one for each chunk of each path, so its size is memory: it is meant to fit the
/// allocator's 192 bytes.
pub(crate) struct RequestContext {
    /// The chunk.
    pub(crate) id: u16,
    /// The connection that the request came on, which the answer takes.
    pub(crate) cid: u16,
    /// Where in the chunk the request's head is.
    pub(crate) offset: u32,
    /// Bytes of data of the request, from the start of the chunk.
    pub(crate) data_len: u32,
    /// Bytes of user message, right behind the data.
    usr_len: u16,
    /// Whether the request is a read; otherwise it is a write.
    is_read: bool,
    /// Where the data of a read goes; `None` if there is none.
    pub(crate) reply: Option<Reply>,
    /// The path's message for this chunk names the chunk's present key.
    pub(crate) key_written: bool,
    /// The chunk's key has been invalidated for this request: the answer brings a new one.
    pub(crate) revoked: bool,
    /// The data area of a read holds what is to be answered.
    pub(crate) filled: bool,
    /// What is answered, as long as the answer waits for room on the send queue.
    pub(crate) status: Result,
    /// Memory of the chunk, shared by the paths of the session, as the path's device sees it.
    pub(crate) mapping: Arc<PageMapping>,
    /// The chunk's own registration, under `always_invalidate`.
    pub(crate) region: Option<Mr>,
    /// The path's connections; given up when the path is torn down, which takes all slots out of
    /// their places.
    pub(crate) connections: Arc<Connections>,
    /// The next slot of a [`RequestList`](crate::server::io::send_queue::Chain).
    pub(crate) next: Option<KBox<RequestContext>>,
    /// The user message, copied out of the chunk, if it fits.
    user: [u8; USER_USUAL],
    /// One that does not fit, as long as its request is in flight.
    user_long: KVec<u8>,
}

const _: () = assert!(size_of::<RequestContext>() <= 192);

impl RequestContext {
    /// Makes the slot of chunk `id`.
    pub(crate) fn new(
        id: u16,
        mapping: Arc<PageMapping>,
        region: Option<Mr>,
        connections: Arc<Connections>,
    ) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                id,
                cid: 0,
                offset: 0,
                data_len: 0,
                usr_len: 0,
                is_read: false,
                reply: None,
                key_written: false,
                revoked: false,
                filled: false,
                status: Ok(()),
                mapping,
                region,
                connections,
                next: None,
                user: [0; USER_USUAL],
                user_long: KVec::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Copies the request's head out of the chunk, once; `None` if it is near the chunk's end,
    /// where [`Self::short_head`] does.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<[u8; HEAD_MAX]> {
        let mut bytes = [0; HEAD_MAX];
        let head = self.mapping.for_cpu(self.offset, HEAD_MAX as u32);
        // A copy of constant length is a few moves.
        head.copy_out(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Copies what the chunk has of the head into `bytes`, once.
    ///
    /// `chunk_size` is the session's; the offset is below it.
    #[cold]
    pub(crate) fn short_head<'a>(
        &self,
        chunk_size: u32,
        bytes: &'a mut [u8; HEAD_MAX],
    ) -> Result<&'a [u8], Malformed> {
        let len = request::head_len(self.offset, chunk_size);
        let head = bytes.get_mut(..len).ok_or(Malformed::Truncated)?;
        self.mapping
            .for_cpu(self.offset, len as u32)
            .copy_out(head)
            .map_err(|_| Malformed::Truncated)?;
        Ok(head)
    }

    /// Parses a head and keeps the result.
    #[inline(always)]
    pub(crate) fn parse(&mut self, head: &[u8]) -> Result<(), Malformed> {
        match request::parse(head, self.offset)? {
            Request::Write(write) => {
                self.data_len = write.data_len;
                self.usr_len = write.usr_len;
                self.is_read = false;
                self.reply = None;
            }
            Request::Read(read) => {
                self.data_len = read.data_len;
                self.usr_len = read.usr_len;
                self.is_read = true;
                self.reply = read.reply;
            }
        }
        Ok(())
    }

    /// Begins to serve the parsed request: takes the data of a write, and the user message, over
    /// from the device, and copies the message out of the chunk, once.
    ///
    /// Sleeps for memory, but only for a message that is no read or write.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Result {
        self.filled = false;
        self.status = Ok(());
        let (start, len) = (self.data_len, u32::from(self.usr_len));
        if !self.is_read {
            self.mapping.for_cpu(0, start);
        }
        // A copy of constant length is a few moves. What is behind a shorter message, the head,
        // does no harm here.
        let usual = self.mapping.for_cpu(start, USER_USUAL as u32);
        if len <= USER_USUAL as u32 && usual.copy_out(&mut self.user).is_ok() {
            return Ok(());
        }
        self.begin_unusual(start, len)
    }

    #[cold]
    fn begin_unusual(&mut self, start: u32, len: u32) -> Result {
        let message = self.mapping.for_cpu(start, len);
        if let Some(user) = self.user.get_mut(..len as usize) {
            return message.copy_out(user);
        }
        self.user_long = KVec::from_elem(0, len as usize, GFP_KERNEL)?;
        message.copy_out(&mut self.user_long)
    }

    /// The chunk's memory, which is the CPU's: the data of a write since [`Self::begin`], that of a
    /// read until its answer is posted, which hands it over to the device.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &Arc<PageBlock> {
        // What is of nobody's interest in the device's view has not to be taken over.
        self.mapping.for_cpu(0, 0).block()
    }

    /// The private copy of the request's user message.
    #[inline]
    pub(crate) fn user(&self) -> &[u8] {
        let len = usize::from(self.usr_len);
        self.user.get(..len).unwrap_or(&self.user_long)
    }

    /// The user message is of no use any more: gives back what a long one took. Any context.
    #[inline(always)]
    pub(crate) fn forget_user(&mut self) {
        if !self.user_long.is_empty() {
            self.user_long = KVec::new();
        }
    }

    /// Says whether the client wants data.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }
}

/// Whether a head says that it is a write.
#[inline(always)]
pub(crate) fn is_write(head: &[u8]) -> bool {
    head.first_chunk()
        .is_some_and(|kind| u16::from_le_bytes(*kind) == wire::WRITE)
}

/// Where one chunk's slot is parked.
pub(crate) struct ChunkState {
    /// Here while the chunk carries no request.
    pub(crate) free: BoxCell<RequestContext>,
    /// Here while the chunk's key is being invalidated.
    pub(crate) armed: BoxCell<RequestContext>,
}

impl ChunkState {
    /// A place whose slot is yet to be made.
    pub(crate) const fn new() -> Self {
        Self {
            free: BoxCell::empty(),
            armed: BoxCell::empty(),
        }
    }
}
