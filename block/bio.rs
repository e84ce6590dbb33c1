// SPDX-License-Identifier: GPL-2.0

//! IO to block devices.
//!
//! A driver keeps what an IO needs (who asked, the device, the pool) in one value `D:` [`BioData`],
//! which travels inside of the bio's allocation: nothing else is allocated or reference counted
//! for an IO.
//!
//! # Examples
//!
//! ```ignore
//! struct Write {
//!     target: Arc<Target>, // has `device: BlockDevice` and `pool: BioPool<Write>`
//! }
//!
//! impl BioData for Write {
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

/// What a bio carries, and who learns of its end.
pub trait BioData: Send + Sized + 'static {
    /// The device that the IO goes to; the data keeps it open.
    fn device(&self) -> &BlockDevice;

    /// The pool that the bio comes from; the data keeps it.
    fn pool(&self) -> &BioPool<Self>;

    /// The IO has ended, with the errno of the device if not `Ok`.
    ///
    /// Called exactly once, in any context, hard interrupts included, and possibly from within
    /// [`Bio::submit`].
    fn end(self, result: Result);
}

/// An IO under construction, with at most one physically contiguous piece of memory.
///
/// Dropped instead of submitted, it ends with `EIO`.
///
/// # Invariants
///
/// `raw` is a bio of a [`BioPool<D>`] that has not been submitted, at the end of an initialized
/// [`Frame<D>`], and all of it is owned by this value.
pub struct Bio<D: BioData> {
    raw: NonNull<bindings::bio>,
    _data: PhantomData<D>,
}

// SAFETY: The bio is owned and tied to no task; the data is `Send`.
unsafe impl<D: BioData> Send for Bio<D> {}

impl<D: BioData> Bio<D> {
    /// Makes a bio for `data.device()`, from `sector` (of 512 bytes) on.
    ///
    /// Process context: if memory is short it sleeps until another bio of the pool ends, and so it
    /// never fails. A task must therefore submit one bio before it makes the next. `flags` that a
    /// driver may not give are ignored.
    pub fn new(data: D, op: Op, flags: Flags, sector: u64) -> Self {
        // An operation that does not exist is refused by `submit`.
        let opf = op.to_bio_opf().unwrap_or(bindings::req_op_REQ_OP_LAST) | flags.to_bio_opf();
        // A flush has no position, whatever the peer of a transport says.
        let sector = if op == Op::Flush { 0 } else { sector };
        let raw = data.pool().alloc(data.device().as_raw(), opf);
        // SAFETY: The bio is ours and its frame not initialized yet.
        unsafe {
            (*raw.as_ptr()).bi_iter.bi_sector = sector;
            (*raw.as_ptr()).bi_end_io = Some(end_io::<D>);
            Frame::<D>::init(raw.as_ptr(), data);
        }
        // INVARIANT: The bio comes from a pool for `D`, and its frame was initialized.
        Bio {
            raw,
            _data: PhantomData,
        }
    }

    /// The data.
    #[inline]
    pub fn data(&self) -> &D {
        // SAFETY: By the type invariant the frame is initialized and ours.
        unsafe { &(*Frame::<D>::of(self.raw.as_ptr())).data }
    }

    #[inline]
    fn bio(&mut self) -> &mut bindings::bio {
        // SAFETY: By the type invariant the bio is ours.
        unsafe { self.raw.as_mut() }
    }

    /// Sets the priority (class in the upper 3 bits, hint and level below).
    ///
    /// `EINVAL` for a class that does not exist: IO schedulers take it for an index.
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

    /// Gives `len_bytes` of `pages` from `offset_bytes` on as the data, and keeps the pages until
    /// the end.
    ///
    /// `EINVAL` outside of the pages or for an empty range, `ENOSPC` the second time.
    pub fn add_pages(
        &mut self,
        pages: Arc<PageBlock>,
        offset_bytes: usize,
        len_bytes: u32,
    ) -> Result {
        // SAFETY: The pages are kept in the frame, below.
        unsafe { self.add_range(&pages, offset_bytes, len_bytes) }?;
        // SAFETY: By the type invariant the frame is initialized and ours.
        unsafe { (*Frame::<D>::of(self.raw.as_ptr())).pages = Some(pages) };
        Ok(())
    }

    /// As [`Self::add_pages`] with pages that the data itself keeps; `EINVAL` if it has none.
    #[inline]
    pub fn add_own_pages(
        &mut self,
        pages: impl for<'a> FnOnce(&'a D) -> Option<&'a PageBlock>,
        offset_bytes: usize,
        len_bytes: u32,
    ) -> Result {
        // SAFETY: By the type invariant the frame is initialized and ours.
        let data = unsafe { &(*Frame::<D>::of(self.raw.as_ptr())).data };
        let pages = pages(data).ok_or(EINVAL)?;
        // SAFETY: The pages live as long as the data is borrowed, and nobody but us, who lend it
        // for sharing only, has it until the bio ends.
        unsafe { self.add_range(pages, offset_bytes, len_bytes) }
    }

    /// # Safety
    ///
    /// The pages stay allocated until the bio ends.
    #[inline]
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
        if self.bio().bi_vcnt != 0 {
            return Err(ENOSPC);
        }
        // SAFETY: The page structures of contiguous memory are contiguous; the offset is inside.
        let page = unsafe { pages.as_page().add(offset_bytes / PAGE_SIZE) };
        let offset = (offset_bytes % PAGE_SIZE) as u32;
        // SAFETY: The bio is ours by the type invariant and has room for one piece; the range lies
        // in the pages, which stay allocated by the requirement.
        unsafe { bindings::__bio_add_page(self.raw.as_ptr(), page, len_bytes, offset) };
        Ok(())
    }

    /// Sets the length of an operation without data in bytes. `EINVAL` if the bio has data.
    #[inline]
    pub fn set_len_bytes(&mut self, len_bytes: u32) -> Result {
        if self.bio().bi_vcnt != 0 {
            return Err(EINVAL);
        }
        self.bio().bi_iter.bi_size = len_bytes;
        Ok(())
    }

    /// Submits the bio; its data learns of the end, errors of this function included. Process
    /// context, may sleep.
    ///
    /// What the block layer does not check is checked here: `EROFS` for a change of a device
    /// opened for reading, `EOPNOTSUPP` for [`Op::Other`], `EINVAL` for a range that does not
    /// start and end at logical blocks, for data that the operation does not take, and for none
    /// where it needs some. Beyond the end of the device is `EIO`; an operation that the device
    /// does not know is `EOPNOTSUPP`.
    pub fn submit(mut self) {
        if let Err(error) = self.check() {
            self.finish(Err(error));
            return;
        }
        let raw = self.raw.as_ptr();
        mem::forget(self);
        // SAFETY: The bio is complete and nobody else has it. Device, pool and pages live until it
        // ends: its data keeps them.
        unsafe { bindings::submit_bio(raw) };
    }

    fn check(&mut self) -> Result {
        let (opf, iter, pieces) = {
            let bio = self.bio();
            (bio.bi_opf, bio.bi_iter, bio.bi_vcnt)
        };
        let device = self.data().device();
        let op = Op::from_raw(opf);
        let flushes = op == Op::Write && Flags::from_raw(opf).contains(Flags::PREFLUSH);
        // An empty flush changes nothing: a reader may ask for it.
        if op.is_write() && !device.is_writable() && !(flushes && iter.bi_size == 0) {
            return Err(EROFS);
        }
        let complete = match op {
            Op::Read => pieces != 0,
            Op::Write => pieces != 0 || (flushes && iter.bi_size == 0),
            Op::Discard | Op::SecureErase | Op::WriteZeroes => pieces == 0 && iter.bi_size != 0,
            Op::Flush | Op::Other => return Err(kernel_ext::errno::EOPNOTSUPP),
        };
        if !complete || !device.is_aligned(iter.bi_sector, iter.bi_size) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Frees the bio and tells its data.
    fn finish(self, result: Result) {
        let this = ManuallyDrop::new(self);
        // SAFETY: By the type invariant bio and frame are ours; the destructor does not run.
        unsafe { finish::<D>(this.raw.as_ptr(), result) };
    }
}

impl<D: BioData> Drop for Bio<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant bio and frame are ours; nobody uses them afterwards.
        unsafe { finish::<D>(self.raw.as_ptr(), Err(EIO)) };
    }
}

/// Frees a bio and tells its data.
///
/// # Safety
///
/// `bio` ends an initialized [`Frame<D>`] that the caller owns and does not use afterwards.
#[inline]
unsafe fn finish<D: BioData>(bio: *mut bindings::bio, result: Result) {
    // SAFETY: By the requirement; the frame's content is taken out exactly once.
    let (data, pages) = unsafe { Frame::<D>::take(bio) };
    // SAFETY: By the requirement the bio is ours. Its pool lives: `data` keeps it.
    unsafe { bindings::bio_put(bio) };
    drop(pages);
    data.end(result);
}

/// The block layer has finished a bio.
///
/// # Safety
///
/// `bio` was submitted by [`Bio::submit`] and ends a [`Frame<D>`].
unsafe extern "C" fn end_io<D: BioData>(bio: *mut bindings::bio) {
    // SAFETY: The bio is ours again.
    let result = match unsafe { (*bio).bi_status } {
        0 => Ok(()),
        status => Err(error_of(status)),
    };
    // SAFETY: By the requirement; the block layer has given the bio back.
    unsafe { finish::<D>(bio, result) };
}

/// The errno of a status that is not success.
#[cold]
fn error_of(status: bindings::blk_status_t) -> Error {
    // SAFETY: The function takes any number.
    Error::from_errno(unsafe { bindings::blk_status_to_errno(status) })
}
