// SPDX-License-Identifier: GPL-2.0

//! A spin lock that disables interrupts while it is held.
//!
//! The kernel crate of 7.2 has none. Guards of `spin_lock_irqsave`, each with its own flags, would
//! turn interrupts on too early when they are dropped in another order than the reverse one, and an
//! interrupt that takes the lock that is still held would spin without end. So each CPU counts its
//! locks, and the last one to be released turns interrupts on. `SpinLockIrq`, which works on the
//! same principle (`local_interrupt_disable()`), replaces this one when the kernel has it.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use kernel::{
    bindings,
    ffi::c_char,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    },
};

/// Creates an [`IrqLock`] initialiser with the given name and a newly-created lock class.
#[macro_export]
macro_rules! new_irq_lock {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::IrqLock::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}

/// A spin lock for every context, hard interrupts included.
///
/// Guards may be dropped in any order.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::{new_irq_lock, IrqLock};
///
/// #[pin_data]
/// struct Slots {
///     #[pin]
///     free: IrqLock<u32>,
/// }
///
/// let slots = KBox::pin_init(pin_init!(Slots { free <- new_irq_lock!(4) }), GFP_KERNEL)?;
/// *slots.free.lock() -= 1;
/// # Ok::<(), Error>(())
/// ```
pub type IrqLock<T> = Lock<T, IrqLockBackend>;

/// The guard of an [`IrqLock`].
pub type IrqLockGuard<'a, T> = Guard<'a, T, IrqLockBackend>;

/// `spinlock_t`, taken with interrupts off.
pub struct IrqLockBackend;

#[cfg(CONFIG_PREEMPT_RT)]
compile_error!("a spin lock of PREEMPT_RT sleeps: IrqLock would need raw_spinlock_t");

// SAFETY: `spinlock_t` gives mutual exclusion. `relock` is the default and calls `lock`.
unsafe impl Backend for IrqLockBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: The caller promises that `ptr` is writable and that `name` and `key` stay.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline(always)]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller promises that the lock is initialised.
        unsafe { kernel_ext_sys::kernel_ext_helper_spin_lock_irq_counted(ptr) }
    }

    #[inline(always)]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The caller promises that the lock is initialised.
        unsafe { kernel_ext_sys::kernel_ext_helper_spin_trylock_irq_counted(ptr) }.then_some(())
    }

    #[inline(always)]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller promises that it holds the lock, which was taken by one of the
        // functions above. A guard stays on its CPU, as interrupts are off.
        unsafe { kernel_ext_sys::kernel_ext_helper_spin_unlock_irq_counted(ptr) }
    }

    /// Asserts that the lock is held, with lockdep only. Without lockdep the C helper is an empty
    /// function, which each `lock` would call.
    #[inline(always)]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The caller promises that the lock is initialised.
            unsafe { bindings::spin_assert_is_held(ptr) }
        }
    }
}
