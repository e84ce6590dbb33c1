// SPDX-License-Identifier: GPL-2.0

//! Locks that many tasks have for reading, or one for writing.
//!
//! C header: [`include/linux/rwsem.h`](srctree/include/linux/rwsem.h)

use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// Creates a [`RwSem`] initialiser with the given name and a newly-created lock class.
#[macro_export]
macro_rules! new_rw_sem {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::RwSem::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}

/// A value that many tasks read at a time, or one changes (`struct rw_semaphore`).
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::{new_rw_sem, RwSem};
///
/// #[pin_data]
/// struct Tables {
///     #[pin]
///     keys: RwSem<KVec<u32>>,
/// }
///
/// let tables = pin_init!(Tables { keys <- new_rw_sem!(KVec::new()) });
/// let tables = KBox::pin_init(tables, GFP_KERNEL)?;
/// tables.keys.write().push(1, GFP_KERNEL)?;
/// assert_eq!(tables.keys.read().len(), 1);
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `raw` is initialised and never moves. Who has it for reading reads `data`, and who has it for
/// writing has `data` alone.
#[pin_data]
pub struct RwSem<T> {
    #[pin]
    raw: Opaque<bindings::rw_semaphore>,
    data: UnsafeCell<T>,
}

// SAFETY: The semaphore is not tied to a thread, and the value goes with it.
unsafe impl<T: Send> Send for RwSem<T> {}
// SAFETY: Several threads read the value at a time, and each may change it, and so take it away.
unsafe impl<T: Send + Sync> Sync for RwSem<T> {}

impl<T> RwSem<T> {
    /// Creates a semaphore that is free; see [`new_rw_sem!`](crate::new_rw_sem).
    pub fn new(
        value: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        // INVARIANT: The C function initialises all of it, as one that is free.
        pin_init!(Self {
            raw <- Opaque::ffi_init(|slot: *mut bindings::rw_semaphore| {
                // SAFETY: The slot is writable memory for a semaphore; name and key are static.
                unsafe { bindings::__init_rwsem(slot, name.as_char_ptr(), key.as_ptr()) }
            }),
            data: UnsafeCell::new(value),
        })
    }

    /// Waits until no one writes, and reads. Sleeps. A task that reads already must not call it.
    pub fn read(&self) -> Reading<'_, T> {
        // SAFETY: By the type invariants, the semaphore is initialised.
        unsafe { bindings::down_read(self.raw.get()) };
        // INVARIANT: The task has it for reading.
        Reading(self, NotThreadSafe)
    }

    /// Waits until no one reads or writes, and writes. Sleeps.
    pub fn write(&self) -> Writing<'_, T> {
        // SAFETY: By the type invariants, the semaphore is initialised.
        unsafe { bindings::down_write(self.raw.get()) };
        // INVARIANT: The task has it for writing.
        Writing(self, NotThreadSafe)
    }
}

/// The value of a [`RwSem`], for reading.
///
/// # Invariants
///
/// The task has the semaphore for reading.
pub struct Reading<'a, T>(&'a RwSem<T>, NotThreadSafe);

/// The value of a [`RwSem`], for writing.
///
/// # Invariants
///
/// The task has the semaphore for writing.
pub struct Writing<'a, T>(&'a RwSem<T>, NotThreadSafe);

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, no one writes while this exists.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the task has it for reading, and gives it back once.
        unsafe { bindings::up_read(self.0.raw.get()) };
    }
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, no one else has the value while this exists.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants, no one else has the value while this exists.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the task has it for writing, and gives it back once.
        unsafe { bindings::up_write(self.0.raw.get()) };
    }
}
