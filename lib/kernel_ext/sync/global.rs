// SPDX-License-Identifier: GPL-2.0

//! Module-wide values, protected by a mutex.
//!
//! `kernel::sync::global_lock!` needs an unsafe call that initialises the lock before its first
//! use; this one does it by itself.
//!
//! C header: [`include/linux/mutex.h`](srctree/include/linux/mutex.h)

use crate::sync::atomic::{AtomicBool, Ordering};
use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut}, //
};
use kernel::{
    bindings,
    prelude::*,
    str::CStr,
    sync::{
        lock::{
            mutex::MutexBackend,
            Backend, //
        },
        LockClassKey, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// A value in a static, protected by a mutex that initialises itself.
///
/// `kernel::sync::global_lock!` does the same, but needs an unsafe call in the module's `init`. A
/// static is never dropped: the module's exit takes out what the value owns.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::Global;
///
/// static NAMES: Global<KVec<u32>> = Global::new(KVec::new());
///
/// NAMES.lock().push(7, GFP_KERNEL)?;
/// drop(core::mem::take(&mut *NAMES.lock())); // at the end of the module
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// When `ready` is set, `mutex` is initialised.
pub struct Global<T> {
    ready: AtomicBool,
    mutex: Opaque<bindings::mutex>,
    key: ManuallyDrop<LockClassKey>,
    value: UnsafeCell<T>,
}

// SAFETY: The lock owns the value, hence `T: Send`.
unsafe impl<T: Send> Send for Global<T> {}
// SAFETY: The mutex gives the value to one thread at a time, hence `T: Send`.
unsafe impl<T: Send> Sync for Global<T> {}

impl<T> Global<T> {
    /// Creates an unlocked value.
    pub const fn new(value: T) -> Self {
        // INVARIANT: `ready` is not set.
        Self {
            ready: AtomicBool::new(false),
            mutex: Opaque::uninit(),
            // SAFETY: Only `prepare` uses the key. It gets a `&'static self`, so the key is static
            // memory and is never dropped.
            key: ManuallyDrop::new(unsafe { LockClassKey::new_static() }),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the mutex. May sleep.
    #[must_use = "the lock is released at once"]
    pub fn lock(&'static self) -> GlobalGuard<T> {
        if !self.ready.load(Ordering::Acquire) {
            self.prepare(c"Global");
        }
        // SAFETY: By the type invariants, `mutex` is initialised, as `ready` is set.
        let () = unsafe { MutexBackend::lock(self.mutex.get()) };
        // INVARIANT: This task just locked the mutex.
        GlobalGuard {
            global: self,
            _not_send: NotThreadSafe,
        }
    }

    #[cold]
    fn prepare(&'static self, name: &'static CStr) {
        // SAFETY: No requirements; the mutex is unlocked below.
        unsafe { kernel_ext_sys::kernel_ext_helper_global_prepare_lock() };
        if !self.ready.load(Ordering::Relaxed) {
            let key = Pin::static_ref(&*self.key).as_ptr();
            // SAFETY: No task uses the mutex, as `ready` is not set, and only the holder of the
            // lock above sets it. Mutex, name and key are static.
            unsafe { MutexBackend::init(self.mutex.get(), name.as_char_ptr(), key) };
            // INVARIANT: `mutex` was just initialised. Pairs with the `Acquire` in `lock`.
            self.ready.store(true, Ordering::Release);
        }
        // SAFETY: This task took the lock above.
        unsafe { kernel_ext_sys::kernel_ext_helper_global_prepare_unlock() };
    }
}

/// The guard of a [`Global`].
///
/// # Invariants
///
/// This task has locked the mutex of `global`.
pub struct GlobalGuard<T: 'static> {
    global: &'static Global<T>,
    _not_send: NotThreadSafe,
}

// SAFETY: A `&GlobalGuard` gives only a `&T`.
unsafe impl<T: Sync> Sync for GlobalGuard<T> {}

impl<T> Deref for GlobalGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, this task has locked the mutex.
        unsafe { &*self.global.value.get() }
    }
}

impl<T> DerefMut for GlobalGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants, this task has locked the mutex.
        unsafe { &mut *self.global.value.get() }
    }
}

impl<T> Drop for GlobalGuard<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this task has locked the mutex.
        unsafe { MutexBackend::unlock(self.global.mutex.get(), &()) };
    }
}
