// SPDX-License-Identifier: GPL-2.0

//! The memory into which a connection receives.
//!
//! C header: [`include/linux/uio.h`](srctree/include/linux/uio.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::bindings;
use net_ext_sys as raw;

/// Memory that is filled from its begin to its end: pages of the page cache, or a buffer.
///
/// Unlike `kernel::iov::IovIterDest` it cannot be advanced without being written: a page of the
/// page cache is not cleared before it is filled, so a byte that is skipped would show old memory
/// to user space.
///
/// # Invariants
///
/// `iter` is an iterator over memory to write to (`ITER_DEST`), which only this value uses during
/// `'a`, and which may be used by any thread.
pub struct Destination<'a> {
    iter: NonNull<bindings::iov_iter>,
    _borrow: PhantomData<&'a mut [u8]>,
}

impl Destination<'_> {
    /// Borrows an iterator of C.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `iter` is an iterator over memory to write to, which is not that
    /// of a user, and that only the returned value uses both during its lifetime.
    pub unsafe fn from_raw(iter: NonNull<bindings::iov_iter>) -> Self {
        // INVARIANT: By the function requirements.
        Self {
            iter,
            _borrow: PhantomData,
        }
    }

    /// Returns how many bytes are not written yet.
    pub fn len(&self) -> usize {
        // SAFETY: By the type invariants, the iterator is valid.
        unsafe { raw::net_ext_helper_iter_count(self.iter.as_ptr()) }
    }

    /// Returns whether all bytes are written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes `bytes`, or as many of them as there is room for, and returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        // SAFETY: By the type invariants, the iterator's memory may be written; `bytes` is readable
        // for its length.
        unsafe { bindings::_copy_to_iter(bytes.as_ptr().cast(), bytes.len(), self.as_raw()) }
    }

    pub(crate) fn as_raw(&mut self) -> *mut bindings::iov_iter {
        self.iter.as_ptr()
    }
}
