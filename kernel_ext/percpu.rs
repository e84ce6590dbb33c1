// SPDX-License-Identifier: GPL-2.0

//! One value for each CPU.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use crate::sync::atomic::{AtomicU64, Ordering};
use core::{
    mem,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*, //
};
use pin_init::Zeroable;

/// A counter in per-CPU data, or anywhere else.
///
/// Adding is one instruction; see [`crate::sync::atomic`].
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

// SAFETY: all bytes zero is the counter 0.
unsafe impl Zeroable for Counter {}

impl Counter {
    /// Adds `n`; wraps around.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the count.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

impl Deref for Counter {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// One `T` for each possible CPU; each starts with its default.
///
/// `T` is shared between CPUs (a task may migrate while it has a reference), so it is made of
/// atomics; the point is that the cache line is usually this CPU's own. `T` has no `Drop`.
///
/// # Examples
///
/// ```
/// use kernel_ext::percpu::{Counter, PerCpu};
///
/// #[derive(Default)]
/// struct Stats {
///     reads: Counter,
///     read_bytes: Counter,
/// }
///
/// let stats = PerCpu::<Stats>::new()?;
/// stats.this_cpu().reads.add(1);
/// let total: u64 = stats.iter().map(|(_cpu, stats)| stats.reads.get()).sum();
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `base` is a per-CPU allocation of the size and alignment of `T` that this value owns, and each
/// CPU's part holds a valid `T`.
pub struct PerCpu<T> {
    base: NonNull<T>,
}

// SAFETY: every thread may refer to every part, hence `T: Sync`; `T` has no drop to run.
unsafe impl<T: Sync> Send for PerCpu<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PerCpu<T> {}

impl<T: Default + Sync> PerCpu<T> {
    /// Allocates the values. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        const { assert!(!mem::needs_drop::<T>()) };
        // SAFETY: no requirements.
        let base = unsafe {
            bindings::pcpu_alloc_noprof(
                mem::size_of::<T>().max(1),
                mem::align_of::<T>(),
                false,
                bindings::GFP_KERNEL,
            )
        };
        // INVARIANT: just allocated; the parts are filled before anybody can see them.
        let this = Self {
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
        };
        for (_cpu, part) in this.parts() {
            // SAFETY: the part of a possible CPU, which nobody else refers to yet.
            unsafe { part.write(T::default()) };
        }
        Ok(this)
    }
}

impl<T> PerCpu<T> {
    /// The possible CPUs and where their parts are.
    fn parts(&self) -> impl Iterator<Item = (u32, *mut T)> + '_ {
        (0..kernel::cpu::nr_cpu_ids()).filter_map(|cpu| {
            // SAFETY: no requirements; gives `false` for an impossible CPU.
            if !unsafe { kernel_ext_sys::kernel_ext_helper_cpu_possible(cpu) } {
                return None;
            }
            // SAFETY: a possible CPU.
            let offset = unsafe { kernel_ext_sys::kernel_ext_helper_per_cpu_offset(cpu) };
            Some((cpu, self.base.as_ptr().wrapping_byte_add(offset)))
        })
    }

    /// This CPU's value, or, if the task migrates, what was this CPU's a moment ago. Any context.
    #[inline(always)]
    pub fn this_cpu(&self) -> &T {
        let address = self.base.as_ptr().wrapping_byte_add(this_cpu_offset());
        // SAFETY: the part of a possible CPU, by the invariant.
        unsafe { &*address }
    }

    /// The possible CPUs and their values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        // SAFETY: the part of a possible CPU, by the invariant.
        self.parts().map(|(cpu, part)| (cpu, unsafe { &*part }))
    }
}

/// What to add to a per-CPU address for this CPU.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn this_cpu_offset() -> usize {
    let offset: usize;
    // SAFETY: reads this CPU's copy of a variable of the kernel (`this_cpu_read(this_cpu_off)`);
    // any CPU's value will do, so it does not matter when it is read.
    unsafe {
        core::arch::asm!(
            "mov {offset}, qword ptr gs:[rip + {this_cpu_off}]",
            offset = out(reg) offset,
            this_cpu_off = sym bindings::this_cpu_off,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    offset
}

/// What to add to a per-CPU address for this CPU.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn this_cpu_offset() -> usize {
    // SAFETY: no requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_this_cpu_offset() }
}

impl<T> Drop for PerCpu<T> {
    fn drop(&mut self) {
        // SAFETY: owned by the invariant.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) };
    }
}
