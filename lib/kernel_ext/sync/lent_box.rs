// SPDX-License-Identifier: GPL-2.0

//! A box whose value is lent without a locked instruction, and which waits at its end.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use crate::percpu::Counts;
use core::{
    mem,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// The counts: loans that have begun, and that have ended.
const BEGUN: usize = 0;
const ENDED: usize = 1;

/// The first and the longest time between two looks of a drop at the loans that have not ended, in
/// microseconds: what is on its way to a disk may take long.
const LOOK_US: i64 = 20;
const LOOK_MAX_US: i64 = 10_000;

struct Inner<T> {
    counts: Counts<2>,
    value: T,
}

/// A box that lends its value. Its drop sleeps until all loans have ended.
///
/// Each CPU counts the loans that begin on it and those that end on it. Who drops the box is alone
/// with it: all loans have begun before, so the number of those is fixed while the drop waits for
/// as many ends.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::LentBox;
///
/// let number = LentBox::new(1u32)?;
/// let loan = number.lend();
/// assert_eq!(*loan, 1);
/// drop(loan);
/// drop(number); // would wait for the loan
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// The pointer comes from [`KBox::into_raw`], and this value owns that box.
pub struct LentBox<T>(NonNull<Inner<T>>);

// SAFETY: The box owns the value, which is dropped where the box is, hence `T: Send`; loans may be
// elsewhere, hence `T: Sync`. Any thread may count.
unsafe impl<T: Send + Sync> Send for LentBox<T> {}
// SAFETY: A shared box gives shared references to the value, hence `T: Sync`.
unsafe impl<T: Sync> Sync for LentBox<T> {}

/// A loan of the value of a [`LentBox`].
///
/// # Invariants
///
/// The pointer is that of a `LentBox`, which has counted the begin of this loan, and not its end.
pub struct Lent<T>(NonNull<Inner<T>>);

// SAFETY: A loan gives shared references to the value only, hence `T: Sync`. Any thread may count.
unsafe impl<T: Sync> Send for Lent<T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for Lent<T> {}

/// Loans of one box that no one uses for now, any number of them, without memory for each. Those
/// that are left when it is dropped end then.
///
/// # Invariants
///
/// If there are `more`, there is `one`, and as many loans of the same box were forgotten.
pub struct Loans<T> {
    one: Option<Lent<T>>,
    more: usize,
}

impl<T> LentBox<T> {
    /// Allocates the box. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn new(value: T) -> Result<Self> {
        let counts = Counts::new()?;
        let inner = KBox::into_raw(KBox::new(Inner { counts, value }, GFP_KERNEL)?);
        // INVARIANT: The pointer comes from `into_raw`.
        // SAFETY: That of a box is not null.
        Ok(Self(unsafe { NonNull::new_unchecked(inner) }))
    }

    /// Lends the value. Any context.
    #[inline(always)]
    pub fn lend(&self) -> Lent<T> {
        // SAFETY: By the type invariants, the pointer is valid.
        let inner = unsafe { self.0.as_ref() };
        inner.counts.increment::<BEGUN>();
        // INVARIANT: The begin has been counted.
        Lent(self.0)
    }
}

impl<T> Drop for LentBox<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the pointer is valid.
        let counts = &unsafe { self.0.as_ref() }.counts;
        let begun = counts.sum(BEGUN);
        let mut look_us = LOOK_US;
        while counts.sum(ENDED) != begun {
            fsleep(Delta::from_micros(look_us));
            look_us = look_us.saturating_mul(2).min(LOOK_MAX_US);
        }
        // SAFETY: By the type invariants, the box is owned. No loan uses it: as many have ended as
        // have begun, and the count of its end is the last that a loan does. A sum that was read
        // while others counted is at most what it has become.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

impl<T> Loans<T> {
    /// Returns none.
    pub const fn new() -> Self {
        // INVARIANT: There are no more.
        Self { one: None, more: 0 }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.one.is_none()
    }

    /// Adds a loan.
    ///
    /// # Errors
    ///
    /// Returns the loan if those that are here are of another box.
    pub fn put(&mut self, loan: Lent<T>) -> Result<(), Lent<T>> {
        match &self.one {
            None => self.one = Some(loan),
            Some(one) if one.0 == loan.0 => {
                // INVARIANT: It is of the same box, and forgotten.
                mem::forget(loan);
                self.more = self.more.wrapping_add(1);
            }
            Some(_) => return Err(loan),
        }
        Ok(())
    }

    /// Takes one of the loans.
    pub fn take(&mut self) -> Option<Lent<T>> {
        match (&self.one, self.more.checked_sub(1)) {
            (Some(one), Some(more)) => {
                self.more = more;
                // INVARIANT: The begin of this loan has been counted; by the type invariants, it
                // was forgotten, and so its end was not.
                Some(Lent(one.0))
            }
            _ => self.one.take(),
        }
    }
}

impl<T> Default for Loans<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Loans<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, the box has not counted the end of this loan, for which
        // its drop waits.
        &unsafe { self.0.as_ref() }.value
    }
}

impl<T> Drop for Lent<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: As in `deref`, until the end is counted.
        unsafe { self.0.as_ref() }.counts.increment::<ENDED>();
    }
}
