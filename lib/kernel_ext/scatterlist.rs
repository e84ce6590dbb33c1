// SPDX-License-Identifier: GPL-2.0

//! Scatter lists: the pieces of physical memory of one transfer.
//!
//! The in-tree `kernel::scatterlist` maps for a `struct device`; RDMA maps for an `ib_device`, and
//! the pieces of a block request come from the block layer, not from a vector of pages. Hence a
//! separate type: [`SgList`] describes the pieces only. Its storage is in a block request
//! (`block_ext::mq::Request`) or in an [`SgTable`].
//!
//! C header: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h)

mod loan;
mod tail;

pub use self::loan::{
    BlockParts,
    Lender,
    Loan,
    SgBuffer, //
};
pub use self::tail::Tail;

use crate::pages::PageBlock;
use core::{
    mem::{
        self,
        offset_of, //
    },
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// One piece; the memory of a `struct scatterlist`.
#[repr(transparent)]
pub struct SgEntry(bindings::scatterlist);

/// The header before the entries of an [`SgList`], for crates that provide the storage of a list,
/// as block_ext does behind each block request.
#[repr(C, align(8))]
pub struct SgHeader {
    capacity: u16,
    writable: bool,
    len_bytes: u32,
    nents: u32,
    /// Entries in use after DMA mapping, 0 while not mapped.
    mapped: u32,
    /// Meaningful while mapped.
    mapping: DmaMapping,
}

/// The device for which a list is mapped, and the direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DmaMapping {
    /// The address of the device's structure, as its identity: it is compared only.
    pub device: usize,
    /// The direction (`enum dma_data_direction`).
    pub direction: bindings::dma_data_direction,
}

/// The pieces of physical memory of one transfer.
///
/// It is an unsized type with its entries at its end, so that no two lists can be swapped through
/// mutable references: a list stays with the memory that it describes.
///
/// # Invariants
///
/// - The first `header.nents` of `entries` describe memory that stays allocated for as long as the
///   list exists with these entries, and are terminated (`sg_mark_end`) when there are any.
/// - `header.nents <= header.capacity`, which is the number of `entries`.
/// - `header.len_bytes` is the sum of the lengths of the entries in use.
#[repr(C)]
pub struct SgList {
    header: SgHeader,
    entries: [SgEntry],
}

// SAFETY: A scatter list names memory by physical pages and is tied to no thread.
unsafe impl Send for SgList {}

// SAFETY: Methods that take a shared reference do not write to the list.
unsafe impl Sync for SgList {}

const ENTRIES_OFFSET: usize = size_of::<SgHeader>();

const _: () = {
    kernel::build_assert::static_assert!(ENTRIES_OFFSET % align_of::<SgEntry>() == 0);
    kernel::build_assert::static_assert!(align_of::<SgHeader>() <= align_of::<SgEntry>());
};

impl SgHeader {
    /// Returns the size of a list of `capacity` entries, in bytes.
    pub const fn list_size(capacity: u16) -> usize {
        ENTRIES_OFFSET + capacity as usize * size_of::<SgEntry>()
    }

    /// Makes an empty list of `capacity` entries.
    ///
    /// # Safety
    ///
    /// `this` must be aligned to 8 bytes and valid for writes of [`Self::list_size`] bytes.
    pub unsafe fn init(this: *mut Self, capacity: u16) {
        // SAFETY: By the function requirements.
        unsafe { ptr::write_bytes(this.cast::<u8>(), 0, Self::list_size(capacity)) };
        // SAFETY: By the function requirements, `this` is aligned and valid for writes; all bytes
        // zero is a valid header.
        unsafe { (*this).capacity = capacity };
    }

    /// Returns the list that starts with this header.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `this` was passed to [`Self::init`] and that its memory is still
    /// allocated.
    #[inline]
    pub unsafe fn list(this: *mut Self) -> *mut SgList {
        // SAFETY: By the function requirements.
        let capacity = unsafe { (*this).capacity };
        ptr::slice_from_raw_parts_mut(this.cast::<SgEntry>(), usize::from(capacity)) as *mut SgList
    }

    /// Removes the entries of an earlier use.
    #[inline]
    pub fn reset(&mut self) {
        self.len_bytes = 0;
        self.nents = 0;
        self.mapped = 0;
    }
}

impl SgList {
    /// Returns the entries as C functions take them; valid for [`Self::nents`] entries, which may
    /// be none.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::scatterlist {
        self.entries.as_ptr().cast_mut().cast()
    }

    /// Returns the number of entries in use, before DMA mapping.
    #[inline]
    pub fn nents(&self) -> u32 {
        self.header.nents
    }

    /// Returns the number of entries that fit.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.header.capacity.into()
    }

    /// Returns the number of bytes described.
    #[inline]
    pub fn len_bytes(&self) -> u32 {
        self.header.len_bytes
    }

    /// Returns whether the list describes no memory.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.header.nents == 0
    }

    /// Returns whether the memory may be written to (by [`Self::copy_in`] or by a device).
    ///
    /// The data of a write request may not be written: it can be the kernel's zero page.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.header.writable
    }

    /// Returns the number of entries in use after DMA mapping, 0 while the list is not mapped.
    #[inline]
    pub fn mapped(&self) -> u32 {
        self.header.mapped
    }

    /// Returns for whom the list is mapped; [`None`] while it is not mapped.
    #[inline]
    pub fn mapping(&self) -> Option<DmaMapping> {
        (self.header.mapped != 0).then_some(self.header.mapping)
    }

    /// Returns address and length of the only DMA segment; [`None`] unless the list is mapped to
    /// one.
    #[inline(always)]
    pub fn only_dma_segment(&self) -> Option<(u64, u32)> {
        if self.header.mapped != 1 {
            return None;
        }
        // SAFETY: A list that is mapped has entries.
        let entry = unsafe { &*self.as_raw() };
        #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
        let len_bytes = entry.dma_length;
        #[cfg(not(CONFIG_NEED_SG_DMA_LENGTH))]
        let len_bytes = entry.length;
        Some((entry.dma_address, len_bytes))
    }

    /// Records that the list has been mapped for DMA to `mapped` entries.
    ///
    /// # Safety
    ///
    /// Must only be called by the DMA layer after it mapped this list, with the number of entries
    /// that the mapping returned, and what it was for.
    #[inline]
    pub unsafe fn set_mapped(&mut self, mapped: u32, mapping: DmaMapping) {
        self.header.mapped = mapped;
        self.header.mapping = mapping;
    }

    /// Records that the list has been unmapped.
    ///
    /// # Safety
    ///
    /// Must only be called by the DMA layer after it unmapped this list.
    #[inline]
    pub unsafe fn set_unmapped(&mut self) {
        self.header.mapped = 0;
    }

    /// Records the entries that the owner of the list's storage has written.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the list is not mapped, that the first `nents` entries, at most
    /// [`Self::capacity`], describe `len_bytes` of memory, end with a mark (`sg_mark_end`) and stay
    /// valid until the list is [reset](SgHeader::reset) or dropped, and that the memory may be
    /// written to if `writable`.
    #[inline]
    pub unsafe fn set_entries(&mut self, nents: u32, len_bytes: u32, writable: bool) {
        // INVARIANT: The requirements of this function are those of the type.
        self.header.nents = nents;
        self.header.len_bytes = len_bytes;
        self.header.writable = writable;
    }

    /// Copies from the described memory, from byte `skip` on. Returns the number of bytes copied.
    ///
    /// Any context. Memory that user space has mapped may change while it is copied.
    pub fn copy_out(&self, skip: usize, to: &mut [u8]) -> usize {
        let Ok(skip) = skip.try_into() else {
            return 0;
        };
        if self.is_empty() {
            return 0;
        }
        let (entries, nents) = (self.as_raw(), self.nents());
        // SAFETY: By the type invariants, the entries describe allocated memory; `to` is a buffer
        // of the length given.
        unsafe {
            bindings::sg_pcopy_to_buffer(entries, nents, to.as_mut_ptr().cast(), to.len(), skip)
        }
    }

    /// Copies to the described memory, from byte `skip` on. Returns the number of bytes copied.
    ///
    /// Any context. Returns `EPERM` if the memory is not writable.
    pub fn copy_in(&mut self, skip: usize, from: &[u8]) -> Result<usize> {
        if !self.is_writable() {
            return Err(EPERM);
        }
        let Ok(skip) = skip.try_into() else {
            return Ok(0);
        };
        if self.is_empty() {
            return Ok(0);
        }
        let (entries, nents) = (self.as_raw(), self.nents());
        // SAFETY: By the type invariants, the entries describe allocated memory, which may be
        // written to; `from` is a buffer of the length given.
        Ok(unsafe {
            bindings::sg_pcopy_from_buffer(entries, nents, from.as_ptr().cast(), from.len(), skip)
        })
    }

    /// Copies from byte `offset` of `pages` on to all of the described memory.
    ///
    /// Any context. A device may change the pages meanwhile.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` if the memory is not writable, `EINVAL` if the pages are too short.
    #[inline]
    pub fn copy_in_pages(&mut self, pages: &PageBlock, offset: usize) -> Result {
        if !self.is_writable() {
            return Err(EPERM);
        }
        let mut at = offset;
        for index in 0..self.nents() as usize {
            // SAFETY: The entry is in use.
            let (address, len) = unsafe { self.entry_memory(index) };
            // SAFETY: By the type invariants, the entry describes allocated memory, which may be
            // written to.
            unsafe { pages.copy_out_to(at, address, len as usize)? };
            at = at.wrapping_add(len as usize);
        }
        Ok(())
    }
}

/// A scatter list with its own storage, which keeps its pages allocated.
///
/// For transfers that do not come from the block layer: admin messages, replies.
///
/// A table that is dropped while it is mapped for DMA leaks its pages and logs that: the device, or
/// a peer, may still write to them.
///
/// # Invariants
///
/// `words` is the memory of an initialized [`SgList`], whose entries describe parts of `pages`.
pub struct SgTable {
    words: KVec<u64>,
    pages: KVec<Arc<PageBlock>>,
}

impl SgTable {
    /// Allocates an empty table of at most `capacity` entries. May sleep.
    pub fn new(capacity: u16) -> Result<Self> {
        let size = SgHeader::list_size(capacity).div_ceil(size_of::<u64>());
        let mut words = KVec::from_elem(0u64, size, GFP_KERNEL)?;
        let pages = KVec::with_capacity(usize::from(capacity), GFP_KERNEL)?;
        // SAFETY: The memory is aligned to 8 bytes and has the length that a list needs.
        unsafe { SgHeader::init(words.as_mut_ptr().cast(), capacity) };
        // INVARIANT: The list has just been initialized and is empty.
        Ok(SgTable { words, pages })
    }

    /// Appends `len_bytes` of `pages` from `offset_bytes` on as one entry, and keeps them.
    ///
    /// Returns `EINVAL` for an empty range or one outside the pages, `ENOSPC` when the table is
    /// full, `EBUSY` while it is mapped for DMA.
    pub fn push(&mut self, pages: Arc<PageBlock>, offset_bytes: usize, len_bytes: u32) -> Result {
        let end = offset_bytes.checked_add(len_bytes as usize).ok_or(EINVAL)?;
        if len_bytes == 0 || end > pages.len_bytes() {
            return Err(EINVAL);
        }
        if self.mapped() != 0 {
            return Err(EBUSY);
        }
        if self.nents() >= self.capacity() {
            return Err(ENOSPC);
        }
        let page = pages.as_page();
        self.pages.push(pages, GFP_KERNEL)?;
        // SAFETY: The range was checked to lie in the pages, which the table keeps from now on.
        unsafe { (**self).push_entry(page, offset_bytes, len_bytes, true) }
    }

    /// Removes all entries and drops the pages. Returns `EBUSY` while the list is mapped for DMA.
    pub fn clear(&mut self) -> Result {
        if self.mapped() != 0 {
            return Err(EBUSY);
        }
        self.header.reset();
        self.pages.clear();
        Ok(())
    }

    fn list(&self) -> NonNull<SgList> {
        let header = self.words.as_ptr().cast_mut().cast::<SgHeader>();
        // SAFETY: By the type invariants, the memory is that of an initialized list; a pointer into
        // a vector is not null.
        unsafe { NonNull::new_unchecked(SgHeader::list(header)) }
    }
}

impl Drop for SgTable {
    fn drop(&mut self) {
        if self.mapped() != 0 {
            pr_err!("a scatter list is dropped while it is mapped for DMA, its pages are leaked\n");
            mem::forget(mem::take(&mut self.pages));
        }
    }
}

/// Fills one entry and ends the list with it.
///
/// # Safety
///
/// The caller must ensure that `entry` is valid for writes, and `page` starts physically contiguous
/// memory that contains `len_bytes` from `offset_bytes` on.
unsafe fn set_entry(
    entry: *mut bindings::scatterlist,
    page: *mut bindings::page,
    offset_bytes: usize,
    len_bytes: u32,
) {
    // SAFETY: The page structures of contiguous memory are contiguous, and the offset lies in it.
    let page = unsafe { page.add(offset_bytes / kernel::page::PAGE_SIZE) };
    // SAFETY: `entry` is valid for writes.
    let entry = unsafe { &mut *entry };
    // The low two bits of a page pointer are free; the list ends here.
    entry.page_link = page as usize | bindings::SG_END as usize;
    entry.offset = (offset_bytes % kernel::page::PAGE_SIZE) as u32;
    entry.length = len_bytes;
}

impl Deref for SgTable {
    type Target = SgList;

    fn deref(&self) -> &SgList {
        // SAFETY: By the type invariants, the list is initialized; it lives as long as `self`.
        unsafe { self.list().as_ref() }
    }
}

impl DerefMut for SgTable {
    fn deref_mut(&mut self) -> &mut SgList {
        // SAFETY: By the type invariants, the list is initialized; it lives as long as `self`,
        // which is borrowed exclusively.
        unsafe { self.list().as_mut() }
    }
}

const _: () = {
    // An entry has the layout of the C structure, so C functions take an array of entries.
    kernel::build_assert::static_assert!(offset_of!(bindings::scatterlist, page_link) == 0);
};
