// SPDX-License-Identifier: GPL-2.0

//! A request as the service gets it.

use core::mem;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;

use crate::server::io::{
    reply,
    request::RequestContext, //
};

/// A request of a client, to be answered exactly once: with [`reply`](Self::reply), or with `EIO`
/// when it is dropped.
///
/// It is one word, and answering it allocates nothing. Until it is answered its path is not freed,
/// and its chunk carries no other request. If its path has failed meanwhile the service answers all
/// the same; the answer is then discarded.
pub struct Operation {
    /// `None` once it is answered.
    context: Option<KBox<RequestContext>>,
}

impl Operation {
    #[inline]
    pub(crate) fn new(context: KBox<RequestContext>) -> Self {
        Self {
            context: Some(context),
        }
    }

    /// Returns the request context without answering; `None` if the operation was answered already.
    pub(crate) fn into_context(mut self) -> Option<KBox<RequestContext>> {
        self.context.take()
    }

    /// Returns whether data goes to the client. A request without data may have either direction: a
    /// C client sends its flush as a read of zero bytes.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.context.as_ref().is_some_and(|s| s.is_read())
    }

    /// Returns the user message, at most 4092 bytes. It was copied out of the chunk before, so the
    /// client cannot change it any more.
    #[inline]
    pub fn user(&self) -> &[u8] {
        self.context.as_ref().map_or(&[], |s| s.user())
    }

    /// Returns the bytes of data. They are at the start of the [memory](Self::memory).
    #[inline]
    pub fn data_len(&self) -> u32 {
        self.context.as_ref().map_or(0, |s| s.data_len)
    }

    /// Returns whether the path is closed, for good: an answer would be discarded.
    pub fn is_discarded(&self) -> bool {
        self.context.as_ref().is_none_or(|context| {
            let connection = context.connections.get(context.cid);
            connection.is_none_or(|connection| !connection.qp.handler().path.is_up())
        })
    }

    /// Returns the chunk's number in its session.
    #[inline]
    pub fn chunk_id(&self) -> u16 {
        self.context.as_ref().map_or(0, |s| s.id)
    }

    /// Returns the memory of the data, the chunk's or that of a copy: the data is its first
    /// [`data_len`](Self::data_len) bytes.
    ///
    /// For a read the caller must fill all of the data before answering with success. With
    /// `always_invalidate=N`, and for a read, the client may write to the memory meanwhile, as a
    /// process may to the buffer of its `O_DIRECT` write.
    ///
    /// # Errors
    ///
    /// `EIO` if the operation was answered already; this does not happen.
    #[inline]
    pub fn pages(&mut self) -> Result<Arc<PageBlock>> {
        let context = self.context.as_mut().ok_or(EIO)?;
        context.filled = true;
        Ok(context.memory().clone())
    }

    /// Takes the caller's promise as [`pages`](Self::pages) does, without a reference: the caller
    /// must fill the data of a read. The memory is then [`memory`](Self::memory).
    #[inline]
    pub fn promise_data(&mut self) {
        if let Some(context) = &mut self.context {
            context.filled = true;
        }
    }

    /// Returns the memory of the data, as [`pages`](Self::pages) does; `None` if the operation was
    /// answered already.
    #[inline]
    pub fn memory(&self) -> Option<&PageBlock> {
        self.context.as_ref().map(|context| &**context.memory())
    }

    /// Copies `bytes` to the start of a read's data and zeroes the rest of it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this is not a read or has less data.
    pub fn write_reply(&mut self, bytes: &[u8]) -> Result {
        let context = self.context.as_mut().ok_or(EIO)?;
        let rest = (context.data_len as usize).checked_sub(bytes.len());
        let Some(rest) = rest.filter(|_| context.is_read()) else {
            return Err(EINVAL);
        };
        context.memory().copy_in(0, bytes)?;
        context.memory().zero(bytes.len(), rest)?;
        context.filled = true;
        Ok(())
    }

    /// Copies data out, starting at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range exceeds the data.
    pub fn read_data(&self, offset: usize, target: &mut [u8]) -> Result {
        let context = self.context.as_ref().ok_or(EIO)?;
        match offset.checked_add(target.len()) {
            Some(end) if end <= context.data_len as usize => {
                context.memory().copy_out(offset, target)
            }
            _ => Err(EINVAL),
        }
    }

    /// Answers the request with `result`. Any context.
    ///
    /// If the service has neither asked for the memory of a read nor written a reply, a successful
    /// answer has zeroes.
    #[inline]
    pub fn reply(mut self, result: Result) {
        if let Some(context) = self.context.take() {
            reply::answer(context, result);
        }
        // Nothing is left to drop, which the compiler does not see.
        mem::forget(self);
    }
}

impl Drop for Operation {
    #[inline]
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            reply::answer(context, Err(EIO));
        }
    }
}
