// SPDX-License-Identifier: GPL-2.0

//! The kernel's `Arc`, RCU and atomics, in which `loom` tries all orders of threads.

pub mod atomic;
pub mod rcu;

pub use crate::folder::handoff::{Handoff, Held};
pub use loom::sync::Arc;

use crate::prelude::{Flags, Result};
use loom::sync::Mutex;

loom::lazy_static! {
    /// Held while a reference is given up: the count changes and is looked at in one step.
    static ref GIVEN_UP: Mutex<()> = Mutex::new(());
}

/// The only reference to a value.
pub struct UniqueArc<T>(Arc<T>);

impl<T> UniqueArc<T> {
    /// Creates one.
    pub fn new(value: T, _flags: Flags) -> Result<Self> {
        Ok(Self(Arc::new(value)))
    }
}

impl<T> From<UniqueArc<T>> for Arc<T> {
    fn from(unique: UniqueArc<T>) -> Self {
        unique.0
    }
}

/// The methods that an [`Arc`] of the kernel has beside those of `loom`.
pub trait ArcExt<T>: Sized {
    /// Gives the reference up, unless it is the last one.
    fn into_unique_or_drop(this: Self) -> Option<UniqueArc<T>>;
}

impl<T> ArcExt<T> for Arc<T> {
    fn into_unique_or_drop(this: Self) -> Option<UniqueArc<T>> {
        let _alone = GIVEN_UP.lock();
        let is_last = Arc::strong_count(&this) == 1;
        is_last.then_some(UniqueArc(this))
    }
}

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
