// SPDX-License-Identifier: GPL-2.0

//! An atomic cell for one box.
//!
//! `kernel::sync::atomic::Atomic` of 7.2 holds no owning pointer, and a `SpinLock<Option<KBox<T>>>`
//! takes a lock in completion handlers, where here one exchange suffices. An atomic of
//! `Option<KBox<T>>` in the kernel crate replaces it.

use crate::sync::atomic::{AtomicPtr, Ordering};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::prelude::*;

/// An atomic cell that holds at most one `KBox<T>`. One word; no operation waits.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::BoxCell;
///
/// let cell = BoxCell::new(KBox::new(7u32, GFP_KERNEL)?);
/// let parked = cell.take().ok_or(EBUSY)?; // a second caller gets `None`
/// assert!(cell.take().is_none());
/// assert!(cell.put(parked).is_ok());
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `ptr` is null or comes from [`KBox::into_raw`], and this value owns that box.
pub struct BoxCell<T> {
    ptr: AtomicPtr<T>,
    _owned: PhantomData<KBox<T>>,
}

// SAFETY: The cell owns a `KBox`, which any thread may take.
unsafe impl<T: Send> Send for BoxCell<T> {}
// SAFETY: Threads put and take the box by atomic operations, hence `T: Send`; the cell gives no
// reference to the boxed value.
unsafe impl<T: Send> Sync for BoxCell<T> {}

impl<T> BoxCell<T> {
    /// Creates an empty cell.
    pub const fn empty() -> Self {
        // INVARIANT: `ptr` is null.
        Self {
            ptr: AtomicPtr::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// Creates a cell that holds `value`.
    pub fn new(value: KBox<T>) -> Self {
        // INVARIANT: `ptr` comes from `into_raw`.
        Self {
            ptr: AtomicPtr::new(KBox::into_raw(value)),
            _owned: PhantomData,
        }
    }

    /// Takes the box. Any context. A full barrier.
    #[inline(always)]
    pub fn take(&self) -> Option<KBox<T>> {
        let taken = self.ptr.swap(ptr::null_mut(), Ordering::SeqCst);
        if taken.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, `taken` comes from `into_raw`; the swap returned it to
        // this caller only.
        Some(unsafe { KBox::from_raw(taken) })
    }

    /// Stores `value` in an empty cell. Any context. A full barrier.
    ///
    /// # Errors
    ///
    /// Returns `value` if the cell is not empty.
    #[inline(always)]
    pub fn put(&self, value: KBox<T>) -> Result<(), KBox<T>> {
        let value = KBox::into_raw(value);
        // INVARIANT: `value` comes from `into_raw`, and the cell owns it if the exchange succeeds.
        match self
            .ptr
            .compare_exchange(ptr::null_mut(), value, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => Ok(()),
            // SAFETY: `value` comes from `into_raw` above, and the exchange did not store it.
            Err(_) => Err(unsafe { KBox::from_raw(value) }),
        }
    }

    /// Returns whether the cell is empty now.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.ptr.load(Ordering::SeqCst).is_null()
    }
}

impl<T> Drop for BoxCell<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
