// SPDX-License-Identifier: GPL-2.0

//! An `Arc` that readers access without a lock and without a reference count.
//!
//! `kernel::sync::rcu` of 7.2 has the guard of a reader and nothing that it protects;
//! `kernel::revocable::Revocable` can be emptied and not replaced. A pointer type of the kernel
//! crate that is published under RCU replaces this one.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use crate::sync::atomic::{AtomicPtr, Ordering};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    bindings,
    sync::{
        rcu,
        Arc, //
    },
};

/// A replaceable `Arc`, read under RCU.
///
/// # Examples
///
/// ```
/// use kernel::sync::{rcu, Arc};
/// use kernel_ext::sync::RcuArc;
///
/// let paths = RcuArc::new(Some(Arc::new(1u32, GFP_KERNEL)?));
/// let guard = rcu::read_lock();
/// assert_eq!(paths.read(&guard), Some(&1));
/// drop(guard);
/// let old = paths.replace(None); // no reader can see it any more
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `ptr` is null or comes from [`Arc::into_raw`], and this value owns that reference. A reference
/// that was in `ptr` is given away only after a grace period.
pub struct RcuArc<T> {
    ptr: AtomicPtr<T>,
    _owned: PhantomData<Arc<T>>,
}

// SAFETY: The value owns an `Arc`, which any thread may replace.
unsafe impl<T: Send + Sync> Send for RcuArc<T> {}
// SAFETY: Threads replace the `Arc` by atomic operations, hence `T: Send`; readers get a `&T`,
// hence `T: Sync`.
unsafe impl<T: Send + Sync> Sync for RcuArc<T> {}

impl<T> RcuArc<T> {
    /// Creates an empty value, for a static.
    pub const fn empty() -> Self {
        // INVARIANT: `ptr` is null.
        Self {
            ptr: AtomicPtr::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// Creates a value that holds `value`.
    pub fn new(value: Option<Arc<T>>) -> Self {
        // INVARIANT: `ptr` is null or comes from `into_raw`.
        Self {
            ptr: AtomicPtr::new(into_raw(value)),
            _owned: PhantomData,
        }
    }

    /// Returns the current value, valid while the guard lives. Any context, never sleeps.
    #[inline(always)]
    pub fn read<'a>(&'a self, _guard: &'a rcu::Guard) -> Option<&'a T> {
        // SAFETY: By the invariant the value lives until a grace period after its replacement,
        // which cannot end while the guard lives.
        unsafe { self.ptr.load(Ordering::Acquire).as_ref() }
    }

    /// Returns a counted reference to the current value. Any context, never sleeps.
    pub fn get(&self) -> Option<Arc<T>> {
        self.get_with(&rcu::read_lock())
    }

    /// Returns a counted reference as [`RcuArc::get`] does, under the guard of the caller.
    #[inline(always)]
    pub fn get_with(&self, guard: &rcu::Guard) -> Option<Arc<T>> {
        let value = ptr::from_ref(self.read(guard)?);
        // SAFETY: The pointer comes from `into_raw`, and while the guard lives that reference is
        // not given away. The borrow only makes a new reference.
        let borrowed = unsafe { kernel::sync::ArcBorrow::from_raw(value) };
        Some(borrowed.into())
    }

    /// Replaces the value and returns the old one, which no reader can see any more.
    ///
    /// Waits for a grace period (milliseconds) if there was an old value. Sleeps.
    pub fn replace(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let old = self.ptr.swap(into_raw(value), Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: The called function has no safety requirements; the caller may sleep.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the type invariants, `old` comes from `into_raw`. Only this call removed it,
        // and a grace period has passed since.
        Some(unsafe { Arc::from_raw(old) })
    }
}

impl<T> Drop for RcuArc<T> {
    fn drop(&mut self) {
        let old = *self.ptr.get_mut();
        if !old.is_null() {
            // SAFETY: By the type invariants, `old` comes from `into_raw`. Readers borrow `self`,
            // so there are none.
            drop(unsafe { Arc::from_raw(old) });
        }
    }
}

fn into_raw<T>(value: Option<Arc<T>>) -> *mut T {
    value.map_or(ptr::null_mut(), |value| Arc::into_raw(value).cast_mut())
}
