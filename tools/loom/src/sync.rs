// SPDX-License-Identifier: GPL-2.0

//! What the kernel's types synchronise by.

pub mod atomic;
pub mod rcu;

pub use loom::sync::Arc;

/// A borrowed [`Arc`].
pub struct ArcBorrow<T>(*const T);

impl<T> ArcBorrow<T> {
    /// Borrows what `Arc::into_raw` returned.
    ///
    /// # Safety
    ///
    /// The reference is not given away while the borrow lives.
    pub unsafe fn from_raw(value: *const T) -> Self {
        Self(value)
    }
}

impl<T> From<ArcBorrow<T>> for Arc<T> {
    fn from(borrow: ArcBorrow<T>) -> Self {
        // SAFETY: By the requirement of `from_raw`, the pointer is that of a reference that stays.
        unsafe {
            Arc::increment_strong_count(borrow.0);
            Arc::from_raw(borrow.0)
        }
    }
}
