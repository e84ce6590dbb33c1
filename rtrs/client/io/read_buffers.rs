// SPDX-License-Identifier: GPL-2.0

//! The buffers of small reads: the server writes their data into memory that is registered once,
//! and the client copies them out. That saves a registration, an invalidation and a message; no
//! page of a user is open to the server meanwhile (decision 0031).

use core::{
    iter::repeat,
    num::NonZeroUsize, //
};

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    sync::atomic::{
        AtomicBool,
        Ordering::{
            AcqRel,
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
use rtrs_core::{
    device::capabilities,
    proto::{
        device::PAGE_SIZE_MIN,
        read_buffers::ReadBuffers, //
    },
};

use crate::client::io::transfer::Transfer;

// A block of the layout is one of pages: the addresses of its buffers are made of its length.
const _: () = assert!(PAGE_SIZE == PAGE_SIZE_MIN as usize);

/// The bytes of protection information that no device has made.
const SPOILT: u8 = 0xfe;

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

    /// Overwrites the last `tail` of `len` bytes, before they are lent: protection information of
    /// the read before, perhaps of the same block, must not stand for data that do not come.
    #[cold]
    pub(crate) fn spoil_end(&self, len: u32, tail: u32) {
        let begin = self.offset.wrapping_add(len.saturating_sub(tail));
        // Within the buffer, as `len` fits.
        let _ = self
            .mapping
            .block()
            .fill(begin as usize, tail as usize, SPOILT);
    }

    /// Returns the address and key for a server that writes `len` bytes; they are the device's
    /// until [`Self::copy_to`].
    #[inline(always)]
    pub(crate) fn lend(&self, len: u32) -> RemoteAddr {
        let _ = self.mapping.for_device(self.offset, len);
        self.remote
    }

    /// Copies what the server has written to all of the memory of `transfer`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if it does not fit, and the errors of [`Transfer::copy_in`].
    #[inline(always)]
    pub(crate) fn copy_to(&self, transfer: &mut impl Transfer) -> Result {
        let len = transfer.data_len();
        if !self.fits(len) {
            return Err(EINVAL);
        }
        let data = self.mapping.for_cpu(self.offset, len);
        data.copy_by(|pages, offset| transfer.copy_in(pages, offset))
    }
}

/// The blocks of the buffers of one path, and their regions, each of which has as many blocks as
/// the device permits.
pub(crate) struct ReadBlocks {
    blocks: KVVec<Arc<PageMapping>>,
    regions: KVVec<Mr>,
    /// Blocks of a region but the last.
    per_region: NonZeroUsize,
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
            regions: KVVec::new(),
            per_region: NonZeroUsize::MIN,
            are_posted: AtomicBool::new(false),
            are_registered: AtomicBool::new(false),
        }
    }

    /// Allocates the blocks for `queue_depth` requests. Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, layout: ReadBuffers, queue_depth: u16) -> Result<Self> {
        let count = layout.blocks(queue_depth) as usize;
        let order = PageBlock::order_for(layout.block_len() as usize);
        let pages_max = capabilities(pd.device()).pages_max;
        let Some(per_region) = layout.blocks_per_region(pages_max) else {
            return Ok(Self::none());
        };
        let per_region: NonZeroUsize = per_region.try_into()?;
        let mut blocks = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let pages = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
            let mapping = PageMapping::new(pd, pages, DmaDirection::Bidirectional)?;
            blocks.push(mapping, GFP_KERNEL)?;
        }
        let mut regions = KVVec::with_capacity(count.div_ceil(per_region.get()), GFP_KERNEL)?;
        for blocks in blocks.chunks(per_region.get()) {
            regions.push(region(pd, blocks)?, GFP_KERNEL)?;
        }
        Ok(Self {
            blocks,
            regions,
            per_region,
            are_posted: AtomicBool::new(false),
            are_registered: AtomicBool::new(false),
        })
    }

    /// Returns the buffers, in the order of the requests.
    pub(crate) fn buffers(&self, layout: ReadBuffers) -> impl Iterator<Item = ReadBuffer> + '_ {
        let runs = self.blocks.chunks(self.per_region.get()).zip(&self.regions);
        let blocks = runs.flat_map(|(blocks, region)| (0u64..).zip(blocks).zip(repeat(region)));
        blocks.flat_map(move |((number, mapping), region)| {
            let begin = number.wrapping_mul(layout.block_len().into());
            let offsets = (0..).map_while(move |index| layout.offset(index));
            offsets.map(move |offset| ReadBuffer {
                mapping: mapping.clone(),
                offset,
                len: layout.buffer_len(),
                remote: RemoteAddr {
                    // Within the region.
                    addr: region
                        .iova()
                        .wrapping_add(begin.wrapping_add(offset.into())),
                    key: region.key(),
                },
            })
        })
    }

    /// Returns the regions that the caller registers before the first read; none if they are, or if
    /// they could not be repaired.
    pub(crate) fn unregistered(&self) -> &[Mr] {
        if self.are_registered.load(Acquire) || self.are_posted.swap(true, AcqRel) {
            return &[];
        }
        &self.regions
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
    /// it did, so that the buffers have other keys. No queue pair is left. Sleeps. On failure none
    /// is used, until it has succeeded.
    pub(crate) fn repair(&mut self, pd: &Arc<Pd>) -> Result<bool> {
        if self.are_registered.load(Acquire) || !self.are_posted.load(Acquire) {
            return Ok(false);
        }
        let runs = self.blocks.chunks(self.per_region.get());
        for (blocks, old) in runs.zip(&mut self.regions) {
            *old = region(pd, blocks)?;
        }
        self.are_posted.store(false, Release);
        Ok(true)
    }
}

/// Returns the region of `blocks`, not registered.
fn region(pd: &Arc<Pd>, blocks: &[Arc<PageMapping>]) -> Result<Mr> {
    let mut region = Mr::of_blocks(pd, blocks, PAGE_SIZE_MIN, Mr::IOVA_BASE)?;
    region.update_key();
    Ok(region)
}
