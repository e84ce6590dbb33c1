// SPDX-License-Identifier: GPL-2.0

//! An `Arc` of which readers get a borrow under RCU, and no reference of their own.

use crate::sync::RcuArc;
use kernel::sync::{
    rcu,
    Arc, //
};

/// A replaceable `Arc`, read under RCU and not otherwise: as [`RcuArc`], but no reader can keep the
/// value. A thread that replaces it is alone with it then, unless it was shared before.
///
/// # Examples
///
/// ```
/// use kernel::sync::{rcu, Arc};
/// use kernel_ext::sync::RcuLent;
///
/// let lent = RcuLent::new(Some(Arc::new(1u32, GFP_KERNEL)?));
/// assert_eq!(lent.read(&rcu::read_lock()), Some(&1));
/// let alone = lent.replace(None).and_then(Arc::into_unique_or_drop);
/// assert!(alone.is_some());
/// # Ok::<(), Error>(())
/// ```
pub struct RcuLent<T>(RcuArc<T>);

impl<T> RcuLent<T> {
    /// Creates a value that holds `value`.
    pub fn new(value: Option<Arc<T>>) -> Self {
        Self(RcuArc::new(value))
    }

    /// Returns the current value, valid while the guard lives. Any context, never sleeps.
    #[inline(always)]
    pub fn read<'a>(&'a self, guard: &'a rcu::Guard) -> Option<&'a T> {
        self.0.read(guard)
    }

    /// Replaces the value and returns the old one, which no reader can see any more.
    ///
    /// Waits for a grace period (milliseconds) if there was an old value. Sleeps.
    pub fn replace(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        self.0.replace(value)
    }
}
