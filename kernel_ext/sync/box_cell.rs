// SPDX-License-Identifier: GPL-2.0

//! A place where one box is parked.

use crate::sync::atomic::{AtomicPtr, Ordering};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::prelude::*;

/// A place where at most one `KBox<T>` is parked. One word; nobody waits for it.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::BoxCell;
///
/// let cell = BoxCell::new(KBox::new(7u32, GFP_KERNEL)?);
/// let parked = cell.take().ok_or(EBUSY)?; // whoever comes second gets nothing
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

// SAFETY: it is a `KBox` that can be taken from any thread.
unsafe impl<T: Send> Send for BoxCell<T> {}
// SAFETY: as above; nobody gets a reference to what is parked.
unsafe impl<T: Send> Sync for BoxCell<T> {}

impl<T> BoxCell<T> {
    /// An empty place.
    pub const fn empty() -> Self {
        // INVARIANT: null.
        Self {
            ptr: AtomicPtr::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// A place where `value` is parked.
    pub fn new(value: KBox<T>) -> Self {
        // INVARIANT: from `into_raw`.
        Self {
            ptr: AtomicPtr::new(KBox::into_raw(value)),
            _owned: PhantomData,
        }
    }

    /// Takes what is parked. Any context. A full barrier.
    #[inline(always)]
    pub fn take(&self) -> Option<KBox<T>> {
        let taken = self.ptr.swap(ptr::null_mut(), Ordering::SeqCst);
        if taken.is_null() {
            return None;
        }
        // SAFETY: from `into_raw` by the invariant; the swap gave it to nobody else.
        Some(unsafe { KBox::from_raw(taken) })
    }

    /// Parks `value`. Any context. A full barrier.
    ///
    /// # Errors
    ///
    /// `value`, if the place is taken.
    #[inline(always)]
    pub fn put(&self, value: KBox<T>) -> Result<(), KBox<T>> {
        let value = KBox::into_raw(value);
        // INVARIANT: from `into_raw`, and the place owns it if the exchange succeeds.
        match self
            .ptr
            .compare_exchange(ptr::null_mut(), value, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => Ok(()),
            // SAFETY: from `into_raw` above, and not parked.
            Err(_) => Err(unsafe { KBox::from_raw(value) }),
        }
    }

    /// Whether nothing is parked right now.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.ptr.load(Ordering::Acquire).is_null()
    }
}

impl<T> Drop for BoxCell<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
