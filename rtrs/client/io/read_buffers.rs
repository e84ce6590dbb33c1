// SPDX-License-Identifier: GPL-2.0

//! The buffers of small reads: the server writes their data into memory that is registered once,
//! and the client copies them out. That saves a registration, an invalidation and a message; no
//! page of a user is open to the server meanwhile (decision 0031).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    scatterlist::SgList,
    sync::atomic::{
        AtomicBool,
        Ordering::{
            Acquire,
            Release, //
        }, //
    }, //
};
use rdma::{
    DmaDirection,
    Mr,
    PageMapping,
    Pd,
    RemoteAddr, //
};
use rtrs_core::proto::read_buffers::ReadBuffers;

/// The pages of a region, in bytes: every device has them.
const PAGE_BYTES: u32 = 4096;

/// The buffer of one request.
pub(crate) struct ReadBuffer {
    mapping: Arc<PageMapping>,
    offset: u32,
    len: u32,
    remote: RemoteAddr,
}

impl ReadBuffer {
    /// Returns whether this many bytes fit.
    #[inline(always)]
    pub(crate) fn fits(&self, len: u32) -> bool {
        len <= self.len
    }

    /// Returns the address and key for a server that writes `len` bytes; they are the device's
    /// until [`Self::copy_to`].
    #[inline(always)]
    pub(crate) fn lend(&self, len: u32) -> RemoteAddr {
        let _ = self.mapping.for_device(self.offset, len);
        self.remote
    }

    /// Copies what the server has written to all of `list`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if it does not fit, `EPERM` if the list is not writable.
    #[inline(always)]
    pub(crate) fn copy_to(&self, list: &mut SgList) -> Result {
        let len = list.len_bytes();
        if !self.fits(len) {
            return Err(EINVAL);
        }
        self.mapping.for_cpu(self.offset, len).copy_to(list)
    }
}

/// The blocks of the buffers of one path, each with its region.
pub(crate) struct ReadBlocks {
    blocks: KVVec<(Arc<PageMapping>, Mr)>,
    /// Registrations of the regions were posted.
    are_posted: AtomicBool,
    /// All keys are valid.
    are_registered: AtomicBool,
}

impl ReadBlocks {
    /// Returns no blocks: no read is copied.
    pub(crate) const fn none() -> Self {
        Self {
            blocks: KVVec::new(),
            are_posted: AtomicBool::new(false),
            are_registered: AtomicBool::new(false),
        }
    }

    /// Allocates the blocks for `queue_depth` requests. Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, layout: ReadBuffers, queue_depth: u16) -> Result<Self> {
        let count = layout.blocks(queue_depth);
        let order = PageBlock::order_for(layout.block_len() as usize);
        let mut blocks = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            let pages = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
            let mapping = PageMapping::new(pd, pages, DmaDirection::FromDevice)?;
            let region = region(pd, &mapping)?;
            blocks.push((mapping, region), GFP_KERNEL)?;
        }
        Ok(Self {
            blocks,
            are_posted: AtomicBool::new(false),
            are_registered: AtomicBool::new(false),
        })
    }

    /// Returns the buffers, in the order of the requests.
    pub(crate) fn buffers(&self, layout: ReadBuffers) -> impl Iterator<Item = ReadBuffer> + '_ {
        self.blocks.iter().flat_map(move |(mapping, region)| {
            let offsets = (0..).map_while(move |index| layout.offset(index));
            offsets.map(move |offset| ReadBuffer {
                mapping: mapping.clone(),
                offset,
                len: layout.buffer_len(),
                remote: RemoteAddr {
                    // Within the region.
                    addr: region.iova().wrapping_add(u64::from(offset)),
                    key: region.key(),
                },
            })
        })
    }

    /// Returns the regions that the caller registers before the first read; none if they are.
    pub(crate) fn unregistered(&self) -> &[(Arc<PageMapping>, Mr)] {
        if self.are_registered.load(Acquire) {
            return &[];
        }
        self.are_posted.store(true, Release);
        &self.blocks
    }

    /// Notes that the device has refused an access of the peer, or has given a queue pair up: a key
    /// may be invalid, as the peer can invalidate it. Any context.
    pub(crate) fn doubt(&self) {
        self.are_registered.store(false, Release);
    }

    /// Notes that all are registered. They stay so in later lives of the path: without a connection
    /// no peer reaches them.
    pub(crate) fn registered(&self) {
        self.are_registered.store(true, Release);
    }

    /// Replaces the regions of which it is not known whether they are registered; returns whether
    /// it did, so that the buffers have other keys. No queue pair is left. Sleeps.
    pub(crate) fn repair(&mut self, pd: &Arc<Pd>) -> Result<bool> {
        if self.are_registered.load(Acquire) || !self.are_posted.load(Acquire) {
            return Ok(false);
        }
        for (mapping, old) in &mut self.blocks {
            *old = region(pd, mapping)?;
        }
        self.are_posted.store(false, Release);
        Ok(true)
    }
}

/// Returns the region of a block, not registered.
fn region(pd: &Arc<Pd>, mapping: &Arc<PageMapping>) -> Result<Mr> {
    let mut region = Mr::of_blocks(
        pd,
        core::slice::from_ref(mapping),
        PAGE_BYTES,
        Mr::IOVA_BASE,
    )?;
    region.update_key();
    Ok(region)
}
