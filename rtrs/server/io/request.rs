// SPDX-License-Identifier: GPL-2.0

//! The context of one chunk's request on one path, allocated with the path: a request allocates
//! nothing.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    sync::{
        BoxCell,
        GraceArc, //
    }, //
};
use rdma::{
    Mr,
    PageMapping, //
};
use rtrs_core::proto::{
    chunk_policy::{
        ChunkPolicy,
        ChunkUse, //
    },
    device::PAGE_SIZE_MIN,
    fence::Carriers,
    request::{
        self,
        Malformed,
        Reply,
        Request,
        HEAD_MAX, //
    }, //
};

use crate::server::{
    io::carriers::ChunkCarriers,
    path::connections::Connections, //
};

/// Longest user message that the context itself stores.
const USER_USUAL: usize = request::USER_USUAL as usize;

/// The context of the one request that a chunk can carry on one path.
///
/// While the chunk carries no request it is in the chunk's [`ChunkState`]; while a request is in
/// flight the code that works on the request owns it. A chunk whose context is not there is busy.
///
/// There is one for each chunk of each path, so its size is memory: it must fit the allocator's
/// 192 bytes.
pub(crate) struct RequestContext {
    /// The chunk.
    pub(crate) id: u16,
    /// The connection that the request came on, which the answer uses.
    pub(crate) cid: u16,
    /// Offset of the request's head in the chunk.
    pub(crate) offset: u32,
    /// Bytes of data of the request, from the start of the chunk.
    pub(crate) data_len: u32,
    /// Bytes of user message, right behind the data.
    usr_len: u16,
    /// Whether the request is a read; otherwise it is a write.
    is_read: bool,
    /// Whether the request is a write whose data is copied.
    is_copied: bool,
    /// Whether the path has added itself to the carriers of the chunk.
    is_counted: bool,
    /// The target of the data of a read; `None` if there is none.
    pub(crate) reply: Option<Reply>,
    /// Whether the path's message for this chunk has the chunk's current key.
    pub(crate) key_written: bool,
    /// Whether the chunk's key was invalidated for this request: the answer brings a new one.
    pub(crate) revoked: bool,
    /// Whether the data area of a read holds the data of the answer.
    pub(crate) filled: bool,
    /// The result, as long as the answer waits for room on the send queue.
    pub(crate) status: Result,
    /// Memory of the chunk, shared by the paths of the session, as the path's device sees it.
    pub(crate) mapping: Arc<PageMapping>,
    /// Memory for the data of a write that is copied, if the policy has any copied.
    copy: Option<Arc<PageBlock>>,
    /// The chunk's own registration, under `always_invalidate`.
    pub(crate) region: Option<Mr>,
    /// The path's connections; dropped with the context when the path is torn down.
    pub(crate) connections: GraceArc<Connections>,
    /// The next context of a [`RequestList`](crate::server::io::send_queue::RequestList).
    pub(crate) next: Option<KBox<RequestContext>>,
    /// The user message, copied out of the chunk, if it fits.
    user: [u8; USER_USUAL],
    /// A longer user message, as long as its request is in flight.
    user_long: KVec<u8>,
}

const _: () = assert!(size_of::<RequestContext>() <= 192);

// The policy charges pages of this size.
const _: () = assert!(PAGE_SIZE == PAGE_SIZE_MIN as usize);

impl RequestContext {
    /// Allocates the context of chunk `id`.
    pub(crate) fn new(
        id: u16,
        mapping: Arc<PageMapping>,
        region: Option<Mr>,
        policy: ChunkPolicy,
        connections: GraceArc<Connections>,
    ) -> Result<KBox<Self>> {
        let copy = match policy.copy_bytes() as usize {
            0 => None,
            bytes => {
                let block = PageBlock::new(PageBlock::order_for(bytes))?;
                Some(Arc::new(block, GFP_KERNEL)?)
            }
        };
        Ok(KBox::new(
            Self {
                id,
                cid: 0,
                offset: 0,
                data_len: 0,
                usr_len: 0,
                is_read: false,
                is_copied: false,
                is_counted: false,
                reply: None,
                key_written: false,
                revoked: false,
                filled: false,
                status: Ok(()),
                mapping,
                copy,
                region,
                connections,
                next: None,
                user: [0; USER_USUAL],
                user_long: KVec::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Copies the request's head out of the chunk, once, and the user message in front of it, if
    /// that has its usual length; `None` if the head is near an end of the chunk, where
    /// [`Self::short_head`] copies both. `offset` is that of the head.
    #[inline(always)]
    pub(crate) fn head(&mut self, offset: u32) -> Option<[u8; HEAD_MAX]> {
        let mut bytes = [0; USER_USUAL + HEAD_MAX];
        let start = offset.checked_sub(USER_USUAL as u32)?;
        let message = self.mapping.for_cpu(start, bytes.len() as u32);
        // A copy of constant length is a few moves.
        message.copy_out(&mut bytes).ok()?;
        let (user, head) = bytes.split_first_chunk()?;
        self.user = *user;
        head.first_chunk().copied()
    }

    /// Copies the part of the head that is in the chunk into `bytes`, once, and the user message as
    /// [`Self::head`] does.
    ///
    /// `chunk_size` is the session's; the offset is below it.
    #[cold]
    pub(crate) fn short_head<'a>(
        &mut self,
        chunk_size: u32,
        bytes: &'a mut [u8; HEAD_MAX],
    ) -> Result<&'a [u8], Malformed> {
        let len = request::head_len(self.offset, chunk_size);
        let head = bytes.get_mut(..len).ok_or(Malformed::Truncated)?;
        if let Some(start) = self.offset.checked_sub(USER_USUAL as u32) {
            let user = self.mapping.for_cpu(start, USER_USUAL as u32);
            user.copy_out(&mut self.user)
                .map_err(|_| Malformed::Truncated)?;
        }
        self.mapping
            .for_cpu(self.offset, len as u32)
            .copy_out(head)
            .map_err(|_| Malformed::Truncated)?;
        Ok(head)
    }

    /// Stores a request whose head was parsed, and how its chunk is used.
    #[inline(always)]
    pub(crate) fn store(&mut self, request: Request, chunk_use: ChunkUse) {
        self.is_copied = chunk_use == ChunkUse::Copied;
        match request {
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
    }

    /// Begins to serve the parsed request: syncs the data of a write for the CPU, and copies it out
    /// of the chunk, once, if the policy wants that, and a user message that is not yet.
    ///
    /// May sleep for memory, but only for a message that is longer than a read's or write's.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Result {
        self.filled = false;
        self.status = Ok(());
        let (start, len) = (self.data_len, u32::from(self.usr_len));
        if !self.is_read {
            let data = self.mapping.for_cpu(0, start);
            if self.is_copied {
                data.copy_to_block(self.copy.as_ref().ok_or(EIO)?)?;
            }
        }
        if len == USER_USUAL as u32 {
            // Copied with the head.
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

    /// Returns the memory of the data: the chunk's, which the CPU owns for a write since
    /// [`Self::begin`], and for a read until the answer is posted, which syncs it for the device;
    /// or that of the copy, which no client can write.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &Arc<PageBlock> {
        match (self.is_copied, &self.copy) {
            (true, Some(copy)) => copy,
            _ => self.mapping.block(),
        }
    }

    /// Returns the private copy of the request's user message.
    #[inline]
    pub(crate) fn user(&self) -> &[u8] {
        let len = usize::from(self.usr_len);
        self.user.get(..len).unwrap_or(&self.user_long)
    }

    /// Frees the memory of a long user message, which is not needed any more. Any context.
    #[inline(always)]
    pub(crate) fn forget_user(&mut self) {
        if !self.user_long.is_empty() {
            self.user_long = KVec::new();
        }
    }

    /// Returns whether the client reads data.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }
}

/// The state of one chunk on one path.
pub(crate) struct ChunkState {
    /// The paths that carry a request in the chunk.
    pub(crate) carriers: Arc<ChunkCarriers>,
    /// The context, while the chunk carries no request.
    pub(crate) free: BoxCell<RequestContext>,
    /// The context, while the chunk's key is being invalidated.
    pub(crate) armed: BoxCell<RequestContext>,
}

impl ChunkState {
    /// Returns a state whose context is yet to be allocated.
    pub(crate) const fn new(carriers: Arc<ChunkCarriers>) -> Self {
        Self {
            carriers,
            free: BoxCell::empty(),
            armed: BoxCell::empty(),
        }
    }

    /// Adds the path to the chunk's carriers, if it `has_peers`. It has just taken `context`.
    #[inline(always)]
    pub(crate) fn count(&self, has_peers: bool, context: &mut RequestContext) -> Option<Carriers> {
        if !has_peers {
            return None;
        }
        context.is_counted = true;
        Some(self.carriers.add())
    }

    /// Takes the path off the chunk's carriers, if it was added. It is about to release `context`.
    #[inline(always)]
    pub(crate) fn discount(&self, context: &mut RequestContext) {
        if context.is_counted {
            context.is_counted = false;
            self.carriers.take_off();
        }
    }
}
