// SPDX-License-Identifier: GPL-2.0

//! Memory regions with fast registration.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    memory::{
        page_mapping::{
            DmaDirection,
            PageMapping, //
        },
        pd::{
            Pd,
            Retired, //
        },
        segment::{
            Access,
            RemoteAddr,
            Segment, //
        },
        sg::{
            self,
            Unmapper, //
        },
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::scatterlist::SgList;

/// The page size of a region that maps a scatterlist.
const SG_PAGE_SIZE: u32 = 4096;

/// A memory region: pages registered as one range under one key.
///
/// The order of use is: map pages ([`of_blocks`](Self::of_blocks), or [`new`](Self::new) and
/// [`map`](Self::map)), update the key ([`update_key`](Self::update_key)), post a registration
/// ([`Batch::reg_mr`](crate::Batch::reg_mr)), let the peer or the own device access it, invalidate
/// the key ([`Batch::local_invalidate`](crate::Batch::local_invalidate), or the peer does).
///
/// # Mapped, registered, invalid
///
/// A work request that registers a region says nothing of its pages: the device takes those that
/// are mapped when it is posted, or, if it is one in software, those that are mapped when the key
/// is used. If a region is mapped anew while a registration of it may still be posted, or is valid,
/// the new pages get the access that was meant for the old ones: writing, for pages that may only
/// be read. To see that would cost each IO something, hence code that has promised nothing cannot
/// do it:
///
/// - a region of blocks is mapped once, when it is made. It may be registered at any time;
/// - a scatterlist is mapped for an [`Unmapper`], which follows the list already from its first
///   work request to its last, and promises that no registration of the region is left then
///   (decision 0014).
///
/// ```compile_fail,E0061
/// use kernel::prelude::*;
/// use kernel_ext::scatterlist::SgList;
/// use rdma::{Access, Batch, Mr, QpHandler, Reliable, SendFlags};
///
/// fn registers_for_writing_what_is_read_only<H: QpHandler<Transport = Reliable>>(
///     batch: &mut Batch<'_, H, 1, 0>,
///     mr: &mut Mr,
///     (writable, read_only): (&SgList, &SgList),
/// ) -> Result {
///     mr.map(writable)?;
///     batch.reg_mr(0, mr, Access::REMOTE_WRITE, SendFlags::NONE);
///     mr.map(read_only)?;
///     batch.post()
/// }
/// ```
///
/// # Addresses
///
/// The core gives a region the DMA address of its first byte as its address, which is a kernel
/// pointer with some devices. Here it is [`IOVA_BASE`](Self::IOVA_BASE), or what the owner of
/// blocks chooses, plus the offset within the first page instead, which discloses no kernel address
/// to the peer.
///
/// # Whose the pages are
///
/// The region keeps its blocks. The pages of a scatterlist belong to its owner, which gets them
/// back from the [`Unmapper`].
///
/// # Invariants
///
/// - `memory` is a region of `pd` that was made for `IB_MR_TYPE_MEM_REG`.
/// - `is_writable` is unset unless the device may write to all that is mapped.
pub struct Mr {
    memory: ManuallyDrop<MrMemory>,
    pd: Arc<Pd>,
    max_pages: u32,
    is_writable: bool,
}

/// The C region and its blocks, which may outlive the handle.
///
/// # Invariants
///
/// `raw` is a memory region that `self` owns; `blocks` is what it maps, or has mapped before a
/// scatterlist.
pub(crate) struct MrMemory {
    raw: NonNull<sys::ib_mr>,
    blocks: KVVec<Arc<PageMapping>>,
}

// SAFETY: Any thread may use and free a region.
unsafe impl Send for MrMemory {}
// SAFETY: A region changes through `&mut` only.
unsafe impl Sync for MrMemory {}

impl Mr {
    /// The start address of a region in the peer's view, unless its owner chooses another: not
    /// zero, not a kernel address, and short enough for an instruction.
    pub const IOVA_BASE: u64 = 1 << 30;

    /// Allocates a region for scatterlists of at most `max_pages` pages (`ib_alloc_mr()`). Sleeps.
    ///
    /// Only the first segment of a list may begin inside a page, and only the last may end inside
    /// one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `ib_alloc_mr()`: `EINVAL` if a list of the device has fewer pages.
    pub fn new(pd: &Arc<Pd>, max_pages: u32) -> Result<Self> {
        pd.add_handle()?;
        let memory = MrMemory::new(pd, max_pages).inspect_err(|_| pd.cancel_handle())?;
        // INVARIANT: The region was just allocated, and maps nothing.
        Ok(Self {
            memory: ManuallyDrop::new(memory),
            pd: pd.clone(),
            max_pages,
            is_writable: false,
        })
    }

    /// Allocates a region that maps `blocks`, one after the other, in pages of `page_size` bytes (a
    /// power of two of at least 4096 that divides every block), at the address `iova` in the peer's
    /// view (a multiple of the page size). It keeps the blocks. Sleeps.
    ///
    /// Returns `EINVAL` for an invalid argument, for blocks of another domain, and if they do not
    /// fit.
    pub fn of_blocks(
        pd: &Arc<Pd>,
        blocks: &[Arc<PageMapping>],
        page_size: u32,
        iova: u64,
    ) -> Result<Self> {
        if blocks.is_empty() || !page_size.is_power_of_two() || page_size < SG_PAGE_SIZE {
            return Err(EINVAL);
        }
        let mask = u64::from(page_size).wrapping_sub(1);
        // The range must not wrap around.
        if iova & mask != 0 || iova >> 56 != 0 {
            return Err(EINVAL);
        }
        let mut kept = KVVec::with_capacity(blocks.len(), GFP_KERNEL)?;
        let mut table = Table::new(blocks.len())?;
        let mut pages = 0u32;
        for (index, block) in blocks.iter().enumerate() {
            if !block.belongs_to(pd) || block.len() % page_size != 0 {
                return Err(EINVAL);
            }
            let count = block.len().checked_div(page_size).ok_or(EINVAL)?;
            pages = pages.checked_add(count).ok_or(EINVAL)?;
            table.set(index, block.dma_address(), block.len());
            kept.push(block.clone(), GFP_KERNEL)?;
        }
        let mut region = Self::new(pd, pages)?;
        region.memory.blocks = kept;
        // SAFETY: The table has one entry with a DMA address for each block.
        unsafe { region.map_raw(table.0.sgl, blocks.len().try_into()?, page_size, iova)? };
        // INVARIANT: What is mapped are the blocks.
        region.is_writable = blocks.iter().all(|block| block.is_writable());
        Ok(region)
    }

    /// Replaces the region by a new one without a mapping, if it is not known whether the last
    /// registration or invalidation was executed. Sleeps.
    ///
    /// The old region is freed now, or with the last queue pair of the domain. An error leaves the
    /// region unchanged.
    pub fn renew(&mut self) -> Result {
        self.pd.add_handle()?;
        let memory =
            MrMemory::new(&self.pd, self.max_pages).inspect_err(|_| self.pd.cancel_handle())?;
        let old = core::mem::replace(&mut self.memory, ManuallyDrop::new(memory));
        // INVARIANT: The new one maps nothing.
        self.is_writable = false;
        self.pd.retire(Retired::Mr(ManuallyDrop::into_inner(old)));
        Ok(())
    }

    /// Maps a scatterlist that [`sg::map`](crate::memory::sg::map) has mapped (`ib_map_mr_sg()`),
    /// on behalf of its `unmapper`, which promises that no registration of the region is left. Any
    /// context.
    ///
    /// Returns `EINVAL` if the list is not mapped for the domain's device, or does not fit into the
    /// region as a whole: too many pages, or a gap in the middle.
    #[inline]
    pub fn map(&mut self, list: &SgList, _unmapper: &impl Unmapper) -> Result<u32> {
        let Some(mapping) = list.mapping() else {
            return Err(EINVAL);
        };
        if !sg::is_mapped_for(list, self.pd.device()) {
            return Err(EINVAL);
        }
        let (entries, base) = (list.mapped(), Self::IOVA_BASE);
        // SAFETY: The list has this many entries with DMA addresses of the region's device.
        let mapped = unsafe { self.map_raw(list.as_raw(), entries, SG_PAGE_SIZE, base) };
        // INVARIANT: Of a list that does not fit the region may map the first pages.
        mapped.inspect_err(|_| self.is_writable = false)?;
        self.is_writable = mapping.direction != DmaDirection::ToDevice.as_raw();
        u32::try_from(self.len()).map_err(|_| EOVERFLOW)
    }

    /// # Safety
    ///
    /// The caller must ensure that `list` has `entries` entries that are mapped for DMA by the
    /// region's device.
    #[inline(always)]
    unsafe fn map_raw(
        &mut self,
        list: *mut kernel::bindings::scatterlist,
        entries: u32,
        page_size: u32,
        iova_base: u64,
    ) -> Result {
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        let raw = self.as_raw();
        // SAFETY: By the function requirements and the type invariants.
        let mapped = unsafe { sys::ib_map_mr_sg(raw, list, entries, ptr::null_mut(), page_size) };
        if mapped != entries {
            return Err(if mapped < 0 {
                Error::from_errno(mapped)
            } else {
                EINVAL
            });
        }
        // The device uses only the offset within the first page, so the rest of the address is free
        // to choose.
        let offset = self.iova() & u64::from(page_size.wrapping_sub(1));
        // SAFETY: By the type invariants, `raw` is valid; the address may change until the
        // registration.
        unsafe { (*raw).iova = iova_base | offset };
        Ok(())
    }

    /// Updates the key (`ib_update_fast_reg_key(ib_inc_rkey())`): increments its lowest 8 bits.
    ///
    /// An old key gives no access once the region is registered under the new one.
    #[inline(always)]
    pub fn update_key(&mut self) {
        self.update_variant(self.key_variant().wrapping_add(1));
    }

    /// Updates the key (`ib_update_fast_reg_key()`): sets its lowest 8 bits.
    #[inline(always)]
    pub fn update_variant(&mut self, variant: u8) {
        let raw = self.as_raw();
        // SAFETY: By the type invariants, `self` owns the region; the driver only reads the keys.
        unsafe {
            (*raw).lkey = ((*raw).lkey & !0xff) | u32::from(variant);
            (*raw).rkey = ((*raw).rkey & !0xff) | u32::from(variant);
        }
    }

    /// Returns the lowest 8 bits of the [`key`](Self::key), which the owner chooses.
    #[inline(always)]
    pub fn key_variant(&self) -> u8 {
        // CAST: the lowest 8 bits.
        self.key() as u8
    }

    /// Returns the remote key that the next registration sets, or the last one has set.
    #[inline(always)]
    pub fn key(&self) -> u32 {
        // SAFETY: By the type invariants, the region is valid.
        unsafe { (*self.as_raw()).rkey }
    }

    /// Returns the address of the first byte in the peer's view.
    #[inline(always)]
    pub fn iova(&self) -> u64 {
        // SAFETY: By the type invariants, the region is valid.
        unsafe { (*self.as_raw()).iova }
    }

    /// Returns the number of bytes that are mapped.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        // SAFETY: By the type invariants, the region is valid.
        unsafe { (*self.as_raw()).length }
    }

    /// Returns whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address and key with which a peer accesses the region.
    #[inline(always)]
    pub fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            addr: self.iova(),
            key: self.key(),
        }
    }

    /// Returns a part of the region for local use, under its key.
    #[inline(always)]
    pub fn segment(&self, offset: u32, length: u32) -> Segment<'_> {
        let end = u64::from(offset) + u64::from(length);
        let addr = self.iova().wrapping_add(u64::from(offset));
        // SAFETY: The region belongs to `pd`, is retired to `pd` when dropped, and covers the part
        // if it fits.
        let segment = unsafe { Segment::new(&self.pd, addr, length, (*self.as_raw()).lkey) };
        segment.or_invalid(end <= self.len())
    }

    /// Returns whether what is mapped may be registered with `access`.
    #[inline(always)]
    pub(crate) fn permits(&self, access: Access) -> bool {
        self.is_writable || !access.is_write()
    }

    #[inline(always)]
    pub(crate) fn belongs_to(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    #[inline(always)]
    pub(crate) fn as_raw(&self) -> *mut sys::ib_mr {
        self.memory.raw.as_ptr()
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: `self.memory` is not used after this.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        self.pd.retire(Retired::Mr(memory));
    }
}

impl MrMemory {
    fn new(pd: &Pd, max_pages: u32) -> Result<Self> {
        let kind = sys::ib_mr_type_IB_MR_TYPE_MEM_REG;
        // SAFETY: The domain is valid.
        let raw = from_err_ptr(unsafe { sys::ib_alloc_mr(pd.as_raw(), kind, max_pages) })?;
        // INVARIANT: The region was just allocated.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            blocks: KVVec::new(),
        })
    }
}

impl Drop for MrMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns the region; no work request refers to it,
        // since no queue pair of its domain is left or it was never posted.
        let error = unsafe { sys::ib_dereg_mr_user(self.raw.as_ptr(), ptr::null_mut()) };
        if error != 0 {
            // The device may still access the pages: leaks them.
            pr_err!("memory region could not be deregistered ({error}), leaking its pages\n");
            core::mem::forget(core::mem::take(&mut self.blocks));
        }
    }
}

/// A scatterlist that exists while blocks are mapped.
///
/// # Invariants
///
/// `self.0` is an allocated table.
struct Table(kernel::bindings::sg_table);

impl Table {
    fn new(entries: usize) -> Result<Self> {
        let mut table = kernel::bindings::sg_table::default();
        let entries = entries.try_into()?;
        // SAFETY: The table is writable; sleeping is allowed.
        kernel::error::to_result(unsafe {
            kernel::bindings::sg_alloc_table(&mut table, entries, kernel::bindings::GFP_KERNEL)
        })?;
        // INVARIANT: The table was just allocated.
        Ok(Self(table))
    }

    fn set(&mut self, index: usize, address: u64, length: u32) {
        // SAFETY: By the type invariants, the table is valid; the helper ignores an index beyond
        // it.
        unsafe { sys::rdma_helper_sg_set_dma(&mut self.0, index as u32, address, length) };
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the table is allocated.
        unsafe { kernel::bindings::sg_free_table(&mut self.0) };
    }
}
