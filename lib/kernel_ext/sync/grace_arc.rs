// SPDX-License-Identifier: GPL-2.0

//! An `Arc` that a section of RCU keeps, without a count.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use core::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        rcu,
        Arc,
        UniqueArc, //
    },
};

/// An `Arc` whose value lives until a grace period after the drop of its last reference.
///
/// So code under RCU can use the value beyond the life of the reference through which it found it,
/// for instance when it gives away what has the reference, and needs no reference of its own.
///
/// The drop of the last reference waits for the grace period (milliseconds) and drops the value
/// then: it sleeps, and must not happen under RCU. That of another one does not.
///
/// # Examples
///
/// ```
/// use kernel::sync::rcu;
/// use kernel_ext::sync::GraceArc;
///
/// let arc = GraceArc::new(1u32)?;
/// let other = arc.clone();
/// let guard = rcu::read_lock();
/// let value = arc.under(&guard);
/// drop(arc);
/// assert_eq!(*value, 1);
/// drop(guard);
/// drop(other); // waits
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// All references to the value are those of `GraceArc`s.
pub struct GraceArc<T>(ManuallyDrop<Arc<T>>);

impl<T> GraceArc<T> {
    /// Allocates the value. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn new(value: T) -> Result<Self> {
        // INVARIANT: The only reference is that of the `GraceArc`.
        let only = UniqueArc::new(value, GFP_KERNEL)?;
        Ok(Self(ManuallyDrop::new(only.into())))
    }

    /// Returns the value, valid while the guard lives. Any context, never sleeps.
    #[inline(always)]
    pub fn under<'a>(&self, _guard: &'a rcu::Guard) -> &'a T {
        let value = ptr::from_ref(&**self.0);
        // SAFETY: `self` is a reference, so the last one is dropped later than now. By the type
        // invariants that is the drop of a `GraceArc`, which waits for a grace period before it
        // drops the value; that one does not end while the guard lives. The value is pinned, as
        // each value of an `Arc`.
        unsafe { &*value }
    }
}

impl<T> Clone for GraceArc<T> {
    fn clone(&self) -> Self {
        // INVARIANT: The new reference is that of a `GraceArc`, too.
        Self(self.0.clone())
    }
}

impl<T> Deref for GraceArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for GraceArc<T> {
    fn drop(&mut self) {
        // SAFETY: It is not used any more.
        let arc = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Some(last) = Arc::into_unique_or_drop(arc) {
            // SAFETY: The called function has no safety requirements; the caller may sleep.
            unsafe { bindings::synchronize_rcu() };
            drop(last);
        }
    }
}
