// SPDX-License-Identifier: GPL-2.0

//! IO to block devices.
//!
//! A driver keeps the state of an IO (the request, the device, the pool) in one value `D:`
//! [`BioData`], which is part of the bio's allocation: an IO needs no further allocation or
//! reference count.
//!
//! # Examples
//!
//! ```ignore
//! struct Write {
//!     target: Arc<Target>, // has `device: BlockDevice` and `pool: BioPool<Write>`
//! }
//!
//! impl BioData for Write {
//!     type Tuples = (); // its bios have none
//!
//!     fn device(&self) -> &BlockDevice {
//!         &self.target.device
//!     }
//!
//!     fn pool(&self) -> &BioPool<Self> {
//!         &self.target.pool
//!     }
//!
//!     fn end(self, result: Result) {
//!         self.target.finished(result);
//!     }
//! }
//!
//! let mut bio = Bio::new(Write { target }, Op::Write, Flags::SYNC, sector);
//! bio.add_pages(pages, 0, 4096)?; // an error drops the bio: `end` is called with `EIO`
//! bio.submit();
//! ```
//!
//! C headers: [`include/linux/bio.h`](srctree/include/linux/bio.h),
//! [`include/linux/blk_types.h`](srctree/include/linux/blk_types.h)

mod pool;

use super::{
    bdev::BlockDevice,
    integrity::{
        BioTuples,
        TupleRoom, //
    },
    Flags,
    Op, //
};
use core::{
    marker::PhantomData,
    mem::{
        self,
        ManuallyDrop, //
    },
    ptr::NonNull, //
};
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;
use pool::Frame;

pub use pool::BioPool;

/// The data of a bio, and its completion handler.
pub trait BioData: Send + Sized + 'static {
    /// The memory beside the data for the description of tuples, which [`Bio::add_tuples`] needs:
    /// [`BioTuples`], or `()` if the bios have none.
    type Tuples: TupleRoom;

    /// Returns the device of the IO; the data keeps it open.
    fn device(&self) -> &BlockDevice;

    /// Returns the pool of the bio; the data keeps it.
    fn pool(&self) -> &BioPool<Self>;

    /// Handles the end of the IO, with the errno of the device if not `Ok`.
    ///
    /// Called exactly once, in any context, hard interrupts included, and possibly from within
    /// [`Bio::submit`].
    fn end(self, result: Result);

    /// Handles that the device has not carried out an IO with [`Flags::NOWAIT`], as its submitter
    /// would have waited (`EAGAIN`), or as it does not know that flag or the operation
    /// (`EOPNOTSUPP`): without the flag it may do so. Called instead of [`Self::end`], in the same
    /// contexts; by default, calls that.
    fn refused(self, error: Error) {
        self.end(Err(error));
    }
}

/// An IO under construction, with at most one physically contiguous piece of memory.
///
/// Dropping it without submitting ends the IO with `EIO`.
///
/// # Invariants
///
/// `raw` is a bio of a [`BioPool<D>`] that has not been submitted, at the end of an initialized
/// [`Frame<D>`], and all of it is owned by this value.
pub struct Bio<D: BioData> {
    raw: NonNull<bindings::bio>,
    // What `raw` has, for `check`: the compiler cannot know that nothing else changes it.
    op: Op,
    flags: Flags,
    sector: u64,
    len_bytes: u32,
    has_data: bool,
    _data: PhantomData<D>,
}

// SAFETY: `self` owns the bio, which is not tied to a task; the data is `Send`.
unsafe impl<D: BioData> Send for Bio<D> {}

impl<D: BioData> Bio<D> {
    /// Allocates a bio for `data.device()`, from `sector` (of 512 bytes) on.
    ///
    /// Process context. Under memory pressure it sleeps until another bio of the pool ends, so it
    /// never fails. A task must therefore submit one bio before it allocates the next. Flags that a
    /// driver may not set are ignored.
    #[inline(always)]
    pub fn new(data: D, op: Op, flags: Flags, sector: u64) -> Self {
        // `submit` rejects an operation that does not exist.
        let opf = op.to_bio_opf().unwrap_or(bindings::req_op_REQ_OP_LAST) | flags.to_bio_opf();
        // A flush has no position, and a peer's position for it is ignored.
        let sector = if op == Op::Flush { 0 } else { sector };
        let raw = data.pool().alloc(data.device().as_raw(), opf);
        // SAFETY: This function owns the bio, whose frame is not initialized yet.
        unsafe {
            (*raw.as_ptr()).bi_iter.bi_sector = sector;
            (*raw.as_ptr()).bi_end_io = Some(end_io::<D>);
            Frame::<D>::init(raw.as_ptr(), data);
        }
        // INVARIANT: The bio comes from a pool for `D`, and its frame was initialized.
        Bio {
            raw,
            op,
            flags,
            sector,
            len_bytes: 0,
            has_data: false,
            _data: PhantomData,
        }
    }

    /// Returns the data.
    #[inline]
    pub fn data(&self) -> &D {
        // SAFETY: By the type invariants, the frame is initialized and ours.
        unsafe { &(*Frame::<D>::of(self.raw.as_ptr())).data }
    }

    #[inline]
    fn bio(&mut self) -> &mut bindings::bio {
        // SAFETY: By the type invariants, the bio is ours.
        unsafe { self.raw.as_mut() }
    }

    /// Sets the priority (class in the upper 3 bits, hint and level below).
    ///
    /// Returns `EINVAL` for a class that does not exist, as IO schedulers use it as an index.
    #[inline]
    pub fn set_ioprio(&mut self, ioprio: u16) -> Result {
        /// `IOPRIO_CLASS_SHIFT` and `IOPRIO_CLASS_IDLE` of `include/uapi/linux/ioprio.h`.
        const CLASS_SHIFT: u32 = 13;
        const CLASS_MAX: u16 = 3;

        if ioprio >> CLASS_SHIFT > CLASS_MAX {
            return Err(EINVAL);
        }
        self.bio().bi_ioprio = ioprio;
        Ok(())
    }

    /// Adds `len_bytes` of `pages` from `offset_bytes` on as the data, and keeps the pages until
    /// the end.
    ///
    /// Returns `EINVAL` for an empty range or one outside the pages, `ENOSPC` if the bio has data.
    pub fn add_pages(
        &mut self,
        pages: Arc<PageBlock>,
        offset_bytes: usize,
        len_bytes: u32,
    ) -> Result {
        // SAFETY: The frame keeps the pages, see below.
        unsafe { self.add_range(&pages, offset_bytes, len_bytes) }?;
        // SAFETY: By the type invariants, the frame is initialized and ours.
        unsafe { (*Frame::<D>::of(self.raw.as_ptr())).pages = Some(pages) };
        Ok(())
    }

    /// Adds data as [`Self::add_pages`] does, with pages that the data itself keeps; returns
    /// `EINVAL` if it has none.
    #[inline]
    pub fn add_own_pages(
        &mut self,
        pages: impl for<'a> FnOnce(&'a D) -> Option<&'a PageBlock>,
        offset_bytes: usize,
        len_bytes: u32,
    ) -> Result {
        // SAFETY: By the type invariants, the frame is initialized and ours.
        let data = unsafe { &(*Frame::<D>::of(self.raw.as_ptr())).data };
        let pages = pages(data).ok_or(EINVAL)?;
        // SAFETY: The data keeps the pages while it is borrowed. Until the bio ends only this type
        // accesses the data, through shared references.
        unsafe { self.add_range(pages, offset_bytes, len_bytes) }
    }

    /// Attaches `len_bytes` of tuples, from `offset_bytes` of the pages that the data keeps, to a
    /// read or write of a device with [integrity](BlockDevice::integrity); `first` is the reference
    /// tag of the first one.
    ///
    /// Returns `EINVAL` for an empty range or one outside the pages, if the data has no pages, or
    /// if bios with this data have no tuples.
    pub fn add_tuples(
        &mut self,
        pages: impl for<'a> FnOnce(&'a D) -> Option<&'a PageBlock>,
        offset_bytes: usize,
        len_bytes: u32,
        first: u64,
    ) -> Result {
        let frame = Frame::<D>::of(self.raw.as_ptr());
        // SAFETY: By the type invariants, the frame is initialized and ours.
        let pages = pages(unsafe { &(*frame).data }).ok_or(EINVAL)?;
        let end = offset_bytes.checked_add(len_bytes as usize).ok_or(EINVAL)?;
        if len_bytes == 0 || end > pages.len_bytes() {
            return Err(EINVAL);
        }
        // SAFETY: The page structures of contiguous memory are contiguous; the offset is inside.
        let page = unsafe { pages.as_page().add(offset_bytes / PAGE_SIZE) };
        // CAST: Less than a page.
        let offset = (offset_bytes % PAGE_SIZE) as u32;
        // SAFETY: As above.
        let tuples = unsafe { (*frame).tuples.room() }.ok_or(EINVAL)?;
        // SAFETY: The frame is part of the bio's allocation, so it does not move before `finish`,
        // which detaches it. The data keeps the pages, as for `add_own_pages`.
        unsafe { tuples.attach(self.raw.as_mut(), page, offset, len_bytes, first) };
        Ok(())
    }

    /// # Safety
    ///
    /// The caller must ensure that the pages stay allocated until the bio ends.
    #[inline(always)]
    unsafe fn add_range(
        &mut self,
        pages: &PageBlock,
        offset_bytes: usize,
        len_bytes: u32,
    ) -> Result {
        let end = offset_bytes.checked_add(len_bytes as usize).ok_or(EINVAL)?;
        if len_bytes == 0 || end > pages.len_bytes() {
            return Err(EINVAL);
        }
        // The length counts what the pieces have: it must not have been set.
        if self.has_data || self.len_bytes != 0 {
            return Err(ENOSPC);
        }
        // SAFETY: The page structures of contiguous memory are contiguous; the offset is inside.
        let page = unsafe { pages.as_page().add(offset_bytes / PAGE_SIZE) };
        let offset = (offset_bytes % PAGE_SIZE) as u32;
        // SAFETY: The bio is ours by the type invariants, and has room for one piece; the range
        // lies in the pages, which stay allocated by the function requirements.
        unsafe { bindings::__bio_add_page(self.raw.as_ptr(), page, len_bytes, offset) };
        (self.len_bytes, self.has_data) = (len_bytes, true);
        Ok(())
    }

    /// Sets the length of an operation without data, in bytes. Returns `EINVAL` if the bio has
    /// data.
    #[inline]
    pub fn set_len_bytes(&mut self, len_bytes: u32) -> Result {
        if self.has_data {
            return Err(EINVAL);
        }
        self.bio().bi_iter.bi_size = len_bytes;
        self.len_bytes = len_bytes;
        Ok(())
    }

    /// Submits the bio. [`BioData::end`] is called at the end, also for errors of this function.
    /// Process context, may sleep.
    ///
    /// Checks what the block layer does not check: `EROFS` for a change of a device opened for
    /// reading, `EOPNOTSUPP` for [`Op::Other`], `EINVAL` for a range that does not start and end at
    /// logical blocks, for data of an operation without data, and for missing data. The block layer
    /// returns `EIO` beyond the end of the device, and `EOPNOTSUPP` for an operation that the
    /// device does not support.
    #[inline(always)]
    pub fn submit(self) {
        if let Err(error) = self.check() {
            self.finish(error);
            return;
        }
        let raw = self.raw.as_ptr();
        mem::forget(self);
        // SAFETY: The bio is complete and owned by this function. Its data keeps device, pool and
        // pages until it ends.
        unsafe { bindings::submit_bio(raw) };
    }

    #[inline(always)]
    fn check(&self) -> Result {
        let device = self.data().device();
        let flushes = match self.op {
            Op::Flush => true,
            Op::Write => self.flags.contains(Flags::PREFLUSH),
            _ => false,
        };
        // An empty flush changes no data, so a read-only user may submit it.
        let is_empty_flush = flushes && self.len_bytes == 0;
        if self.op.is_write() && !device.is_writable() && !is_empty_flush {
            return Err(EROFS);
        }
        let complete = match self.op {
            Op::Read => self.has_data,
            Op::Write | Op::Flush => self.has_data || is_empty_flush,
            Op::Discard | Op::SecureErase | Op::WriteZeroes => {
                !self.has_data && self.len_bytes != 0
            }
            Op::Other => return Err(kernel_ext::errno::EOPNOTSUPP),
        };
        if !complete || !device.is_aligned(self.sector, self.len_bytes) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Frees the bio and calls [`BioData::end`]. Inlined, as the drop is, so that the fields of a
    /// bio that is submitted stay in registers.
    #[inline(always)]
    fn finish(self, error: Error) {
        let this = ManuallyDrop::new(self);
        // SAFETY: By the type invariants, this owns bio and frame; the destructor does not run.
        unsafe { abandon::<D>(this.raw.as_ptr(), error) };
    }
}

impl<D: BioData> Drop for Bio<D> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns bio and frame, and does not use them
        // afterwards.
        unsafe { abandon::<D>(self.raw.as_ptr(), EIO) };
    }
}

/// Ends a bio that was not submitted.
///
/// # Safety
///
/// As for [`finish`].
#[cold]
#[inline(never)]
unsafe fn abandon<D: BioData>(bio: *mut bindings::bio, error: Error) {
    // SAFETY: By the function requirements.
    unsafe { finish::<D>(bio, Err(error)) };
}

/// Frees a bio and calls [`BioData::end`].
///
/// # Safety
///
/// The caller must ensure that `bio` ends an initialized [`Frame<D>`] that the caller owns and does
/// not use afterwards.
#[inline]
unsafe fn finish<D: BioData>(bio: *mut bindings::bio, result: Result) {
    // SAFETY: By the function requirements.
    unsafe { free::<D>(bio) }.end(result);
}

/// Frees a bio; returns its data.
///
/// # Safety
///
/// As for [`finish`].
#[inline]
unsafe fn free<D: BioData>(bio: *mut bindings::bio) -> D {
    if D::Tuples::IS_THERE {
        // SAFETY: By the function requirements, the caller owns the bio.
        BioTuples::detach(unsafe { &mut *bio });
    }
    // SAFETY: By the function requirements; the frame's content is taken out exactly once.
    let (data, pages) = unsafe { Frame::<D>::take(bio) };
    // SAFETY: By the function requirements, the caller owns the bio. `data` keeps its pool.
    unsafe { bindings::bio_put(bio) };
    drop(pages);
    data
}

/// Handles the end of a bio.
///
/// # Safety
///
/// The caller must ensure that `bio` was submitted by [`Bio::submit`] and ends a [`Frame<D>`].
unsafe extern "C" fn end_io<D: BioData>(bio: *mut bindings::bio) {
    // SAFETY: The block layer has returned the bio.
    match unsafe { (*bio).bi_status } {
        // SAFETY: By the function requirements; the block layer has returned the bio.
        0 => unsafe { finish::<D>(bio, Ok(())) },
        // SAFETY: As above.
        status => unsafe { failed::<D>(bio, status) },
    }
}

/// Handles the end of a bio with a status that is not success.
///
/// # Safety
///
/// As for [`end_io`]; the block layer has returned the bio.
#[cold]
unsafe fn failed<D: BioData>(bio: *mut bindings::bio, status: bindings::blk_status_t) {
    // SAFETY: The function accepts any number.
    let error = Error::from_errno(unsafe { bindings::blk_status_to_errno(status) });
    // SAFETY: By the function requirements.
    let may_refuse = Flags::from_raw(unsafe { (*bio).bi_opf }).contains(Flags::NOWAIT);
    // SAFETY: By the function requirements.
    let data = unsafe { free::<D>(bio) };
    if may_refuse && (error == EAGAIN || error == kernel_ext::errno::EOPNOTSUPP) {
        data.refused(error);
    } else {
        data.end(Err(error));
    }
}
