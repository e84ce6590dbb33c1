// SPDX-License-Identifier: GPL-2.0

//! A request, as it is handed to the service above.

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
/// It is one word, and answering it allocates nothing. The path that it came on is not freed, and
/// the chunk carries no other request, until it is answered. A request whose path has failed
/// meanwhile is answered all the same; the answer is then thrown away.
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

    /// The slot, which is not answered by this; `None` if the operation was answered already.
    pub(crate) fn into_slot(mut self) -> Option<KBox<RequestContext>> {
        self.context.take()
    }

    /// Says whether data goes to the client. A request without data may come either way: a C client
    /// sends its flush as a read of nothing.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.context.as_ref().is_some_and(|s| s.is_read())
    }

    /// The user message, at most 4092 bytes, copied out of the chunk before the service saw it:
    /// the client cannot change it any more.
    #[inline]
    pub fn user(&self) -> &[u8] {
        self.context.as_ref().map_or(&[], |s| s.user())
    }

    /// Bytes of data. They are at the start of the chunk.
    #[inline]
    pub fn data_len(&self) -> u32 {
        self.context.as_ref().map_or(0, |s| s.data_len)
    }

    /// The chunk's number in its session.
    #[inline]
    pub fn chunk_id(&self) -> u16 {
        self.context.as_ref().map_or(0, |s| s.id)
    }

    /// The chunk's memory, for zero copy: the data is its first [`data_len`](Self::data_len)
    /// bytes.
    ///
    /// Whoever asks for the memory of a read promises to fill all of the data before answering
    /// with success. With `always_invalidate=N`, and for a read, the client may go on writing to
    /// the memory, as a program may into the buffer of its `O_DIRECT` write.
    ///
    /// # Errors
    ///
    /// None in practice; `EIO` if the operation was answered already.
    #[inline]
    pub fn pages(&mut self) -> Result<Arc<PageBlock>> {
        let context = self.context.as_mut().ok_or(EIO)?;
        context.filled = true;
        Ok(context.memory().clone())
    }

    /// As [`pages`](Self::pages) without a reference to keep: the promise to fill the data of a
    /// read. The memory is then [`memory`](Self::memory).
    #[inline]
    pub fn promise_data(&mut self) {
        if let Some(context) = &mut self.context {
            context.filled = true;
        }
    }

    /// The chunk's memory; `None` if the operation was answered already.
    #[inline]
    pub fn memory(&self) -> Option<&PageBlock> {
        self.context.as_ref().map(|context| &**context.memory())
    }

    /// Puts `bytes` at the start of a read's data and zeroes the rest of it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this is no read or has less data.
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

    /// Copies data out, from `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that is not all within the data.
    pub fn read_data(&self, offset: usize, target: &mut [u8]) -> Result {
        let context = self.context.as_ref().ok_or(EIO)?;
        match offset.checked_add(target.len()) {
            Some(end) if end <= context.data_len as usize => {
                context.memory().copy_out(offset, target)
            }
            _ => Err(EINVAL),
        }
    }

    /// Answers. Any context.
    ///
    /// A read that is answered with success, but for which nobody asked for the memory and nobody
    /// wrote a reply, is answered with zeroes.
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
