// SPDX-License-Identifier: GPL-2.0

//! Values of a whole module, behind a mutex.
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

/// A value in a static, behind a mutex that needs no initialisation by its user.
///
/// `kernel::sync::global_lock!` does the same, but asks for an unsafe call in the module's `init`.
/// A static is never dropped: what the value owns must be taken out before the module ends.
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

// SAFETY: the value moves with the lock.
unsafe impl<T: Send> Send for Global<T> {}
// SAFETY: the mutex gives the value to one thread at a time, hence `T: Send`.
unsafe impl<T: Send> Sync for Global<T> {}

impl<T> Global<T> {
    /// A value that nobody has locked yet.
    pub const fn new(value: T) -> Self {
        // INVARIANT: not ready.
        Self {
            ready: AtomicBool::new(false),
            mutex: Opaque::uninit(),
            // SAFETY: the key is used by `prepare` only, which gets a `&'static self`: the memory
            // is static then, and it is never dropped.
            key: ManuallyDrop::new(unsafe { LockClassKey::new_static() }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. Sleeps.
    #[must_use = "the lock is let go at once"]
    pub fn lock(&'static self) -> GlobalGuard<T> {
        if !self.ready.load(Ordering::Acquire) {
            self.prepare(c"Global");
        }
        // SAFETY: initialised by the invariant.
        let () = unsafe { MutexBackend::lock(self.mutex.get()) };
        // INVARIANT: this task just locked it.
        GlobalGuard {
            global: self,
            _not_send: NotThreadSafe,
        }
    }

    #[cold]
    fn prepare(&'static self, name: &'static CStr) {
        // SAFETY: no requirements; a mutex of this crate, unlocked below.
        unsafe { kernel_ext_sys::kernel_ext_helper_global_prepare_lock() };
        if !self.ready.load(Ordering::Relaxed) {
            let key = Pin::static_ref(&*self.key).as_ptr();
            // SAFETY: nobody uses the mutex, as it is not ready and only the holder of the lock
            // above makes it so; it is static, as are name and key.
            unsafe { MutexBackend::init(self.mutex.get(), name.as_char_ptr(), key) };
            // INVARIANT: just initialised. Pairs with the `Acquire` in `lock`.
            self.ready.store(true, Ordering::Release);
        }
        // SAFETY: locked above.
        unsafe { kernel_ext_sys::kernel_ext_helper_global_prepare_unlock() };
    }
}

/// The right to the value of a [`Global`].
///
/// # Invariants
///
/// This task has locked the mutex of `global`.
pub struct GlobalGuard<T: 'static> {
    global: &'static Global<T>,
    _not_send: NotThreadSafe,
}

// SAFETY: a `&GlobalGuard` gives only a `&T`.
unsafe impl<T: Sync> Sync for GlobalGuard<T> {}

impl<T> Deref for GlobalGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked by the invariant.
        unsafe { &*self.global.value.get() }
    }
}

impl<T> DerefMut for GlobalGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is locked by the invariant.
        unsafe { &mut *self.global.value.get() }
    }
}

impl<T> Drop for GlobalGuard<T> {
    fn drop(&mut self) {
        // SAFETY: locked by this task, by the invariant.
        unsafe { MutexBackend::unlock(self.global.mutex.get(), &()) };
    }
}
