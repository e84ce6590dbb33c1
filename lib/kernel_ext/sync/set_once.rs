// SPDX-License-Identifier: GPL-2.0

//! A value that is set once and then only read.
//!
//! The interface is that of `kernel::sync::SetOnce`, whose `as_ref` calls a C helper for its load
//! in 7.2 (decision 0008); the IO path reads such values. It replaces this one when helpers are
//! inlined.

use crate::sync::atomic::{AtomicU8, Ordering};
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};

/// The value is not set.
const EMPTY: u8 = 0;
/// A caller is setting the value.
const BUSY: u8 = 1;
/// The value is set.
const SET: u8 = 2;

/// A value that is set at most once.
///
/// As `kernel::sync::SetOnce`, which calls a C helper for each read. This one is for the IO path: a
/// read is one load.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::SetOnce;
///
/// let value = SetOnce::new();
/// assert_eq!(value.as_ref(), None);
/// assert!(value.populate(7));
/// assert!(!value.populate(8));
/// assert_eq!(value.as_ref(), Some(&7));
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// While `state` is `SET`, which it stays, `value` is initialised and not changed. While it is
/// `BUSY`, one caller of [`populate`](Self::populate) has `value` for itself.
pub struct SetOnce<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: The cell owns the value, hence `T: Send`.
unsafe impl<T: Send> Send for SetOnce<T> {}
// SAFETY: Readers get a `&T`, hence `T: Sync`; the value may come from another thread, hence
// `T: Send`.
unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

impl<T> SetOnce<T> {
    /// Creates a value that is not set yet.
    pub const fn new() -> Self {
        // INVARIANT: The state is `EMPTY`.
        Self {
            state: AtomicU8::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Returns the value, if it is set. Any context.
    #[inline(always)]
    pub fn as_ref(&self) -> Option<&T> {
        // `Acquire` pairs with the `Release` of `populate`.
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        // SAFETY: By the type invariants, the value is initialised and not changed any more.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Sets the value if it is not set; returns whether it did. Any context.
    pub fn populate(&self, value: T) -> bool {
        let begun = self
            .state
            .compare_exchange(EMPTY, BUSY, Ordering::Relaxed, Ordering::Relaxed);
        if begun.is_err() {
            return false;
        }
        // SAFETY: By the type invariants, this caller has exclusive access to `value` while the
        // state is `BUSY`.
        unsafe { (*self.value.get()).write(value) };
        // INVARIANT: `value` was initialised above.
        self.state.store(SET, Ordering::Release);
        true
    }
}

impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for SetOnce<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == SET {
            // SAFETY: By the type invariants, `value` is initialised; it is not used again.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}
