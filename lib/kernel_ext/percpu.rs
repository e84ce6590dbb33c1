// SPDX-License-Identifier: GPL-2.0

//! Per-CPU values.
//!
//! The kernel crate of 7.2 has none. When it has (one was posted to the list), that replaces
//! [`PerCpu`]; [`Counter`] stays as long as atomics of the kernel crate are calls (decision 0008).
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

mod counts;

pub use counts::Counts;

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

/// A counter, for per-CPU data or elsewhere.
///
/// Adding is one instruction; see [`crate::sync::atomic`].
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

// SAFETY: All bytes zero is the counter 0.
unsafe impl Zeroable for Counter {}

impl Counter {
    /// Adds `n`; wraps around.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value.
    #[inline(always)]
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

/// One `T` for each possible CPU, which starts with its default.
///
/// CPUs share `T`, as a task may migrate while it has a reference, so `T` consists of atomics. The
/// cache line is usually local to the CPU. `T` has no `Drop`.
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

// SAFETY: Every thread may refer to every part, hence `T: Sync`; `T` has no `Drop`.
unsafe impl<T: Sync> Send for PerCpu<T> {}
// SAFETY: A shared value gives shared references to the parts, hence `T: Sync`.
unsafe impl<T: Sync> Sync for PerCpu<T> {}

impl<T: Default + Sync> PerCpu<T> {
    /// Allocates the values. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn new() -> Result<Self> {
        const { assert!(!mem::needs_drop::<T>()) };
        // SAFETY: The called function has no safety requirements.
        let base = unsafe {
            bindings::pcpu_alloc_noprof(
                mem::size_of::<T>().max(1),
                mem::align_of::<T>(),
                false,
                bindings::GFP_KERNEL,
            )
        };
        // INVARIANT: `base` was just allocated; the loop below fills the parts before `this` is
        // returned.
        let this = Self {
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
        };
        for (_cpu, part) in this.parts() {
            // SAFETY: `part` is the part of a possible CPU, and no reference to it exists yet.
            unsafe { part.write(T::default()) };
        }
        Ok(this)
    }
}

impl<T> PerCpu<T> {
    /// Returns the address of a CPU's part; [`None`] if there cannot be such a CPU.
    fn part(&self, cpu: u32) -> Option<*mut T> {
        if cpu >= kernel::cpu::nr_cpu_ids() {
            return None;
        }
        // SAFETY: A CPU may have this number; `false` is returned for an impossible CPU.
        if !unsafe { kernel_ext_sys::kernel_ext_helper_cpu_possible(cpu) } {
            return None;
        }
        // SAFETY: `cpu` is a possible CPU.
        let offset = unsafe { kernel_ext_sys::kernel_ext_helper_per_cpu_offset(cpu) };
        Some(self.base.as_ptr().wrapping_byte_add(offset))
    }

    /// Returns the possible CPUs and the addresses of their parts.
    fn parts(&self) -> impl Iterator<Item = (u32, *mut T)> + '_ {
        (0..kernel::cpu::nr_cpu_ids()).filter_map(|cpu| Some((cpu, self.part(cpu)?)))
    }

    /// Returns the value of the current CPU, or of another CPU if the task migrates meanwhile. Any
    /// context.
    #[inline(always)]
    pub fn this_cpu(&self) -> &T {
        let address = self.base.as_ptr().wrapping_byte_add(this_cpu_offset());
        // SAFETY: By the type invariants, the part of a possible CPU holds a valid `T`.
        unsafe { &*address }
    }

    /// Returns the value of a CPU; [`None`] if there cannot be such a CPU. Any context.
    pub fn of_cpu(&self, cpu: u32) -> Option<&T> {
        // SAFETY: By the type invariants, the part of a possible CPU holds a valid `T`.
        self.part(cpu).map(|part| unsafe { &*part })
    }

    /// Returns the possible CPUs and their values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        // SAFETY: By the type invariants, the part of a possible CPU holds a valid `T`.
        self.parts().map(|(cpu, part)| (cpu, unsafe { &*part }))
    }
}

/// Returns the offset of the current CPU's part from a per-CPU address.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn this_cpu_offset() -> usize {
    let offset: usize;
    // SAFETY: The instruction reads the current CPU's copy of a kernel variable
    // (`this_cpu_read(this_cpu_off)`). A value read before a migration is valid as well.
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

/// Returns the offset of the current CPU's part from a per-CPU address.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn this_cpu_offset() -> usize {
    // SAFETY: The called function has no safety requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_this_cpu_offset() }
}

impl<T> Drop for PerCpu<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this value owns the allocation.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) };
    }
}
