// SPDX-License-Identifier: GPL-2.0

//! The memory for the tuples of a session's requests, one block for each tag.

use block_ext::mq::Request;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;

use super::{
    Session,
    DEPTH_MAX, //
};
use crate::{
    client::queue::Queue,
    proto::pi::geometry::TUPLES_LEN_MAX, //
};

/// The most bytes of data in front of the tuples: what lies behind the last page boundary.
const TAIL_LEN_MAX: usize = 4096;

/// The blocks of a session with a device that has protection information.
pub(crate) struct TupleBuffers(KVVec<Arc<PageBlock>>);

impl TupleBuffers {
    /// Returns the block of `request`, which is its own as long as it has its tag.
    #[inline]
    pub(crate) fn of(&self, request: &Request<Queue>) -> Option<&Arc<PageBlock>> {
        self.0.get(request.tag() as usize)
    }
}

impl Session {
    /// Returns the blocks, one for each tag; the first call, for the session's first device with
    /// protection information, allocates them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and `ENOTCONN` while the session is being created.
    pub(crate) fn tuple_buffers(&self) -> Result<Arc<TupleBuffers>> {
        let mut buffers = self.tuple_buffers.lock();
        if let Some(buffers) = &*buffers {
            return Ok(buffers.clone());
        }
        let order = PageBlock::order_for(TAIL_LEN_MAX + usize::from(TUPLES_LEN_MAX));
        let depth = u32::from(self.rtrs()?.io_depth()).min(DEPTH_MAX);
        let mut blocks = KVVec::with_capacity(depth as usize, GFP_KERNEL)?;
        for _ in 0..depth {
            let block = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
            blocks.push(block, GFP_KERNEL)?;
        }
        let new = Arc::new(TupleBuffers(blocks), GFP_KERNEL)?;
        *buffers = Some(new.clone());
        Ok(new)
    }
}
