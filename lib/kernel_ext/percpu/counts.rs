// SPDX-License-Identifier: GPL-2.0

//! Counts of which each CPU has its own, so that counting takes no locked instruction.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use super::PerCpu;
use crate::sync::atomic::{AtomicU64, Ordering};
use core::array;
use kernel::prelude::*;

/// The counts of one CPU.
#[repr(C)]
struct Part<const N: usize> {
    /// Counts to which this CPU alone adds.
    counts: [AtomicU64; N],
    /// Their values at the last reset.
    reset_at: [AtomicU64; N],
}

impl<const N: usize> Default for Part<N> {
    fn default() -> Self {
        Self {
            counts: array::from_fn(|_| AtomicU64::new(0)),
            reset_at: array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// `N` counts, each the sum of what the CPUs have counted; wraps around.
///
/// # Examples
///
/// ```
/// use kernel_ext::percpu::Counts;
///
/// const READS: usize = 0;
/// const READ_BYTES: usize = 1;
///
/// let counts = Counts::<2>::new()?;
/// counts.increment::<READS>();
/// counts.add::<READ_BYTES>(4096);
/// assert_eq!(counts.sum(READ_BYTES), 4096);
/// # Ok::<(), Error>(())
/// ```
pub struct Counts<const N: usize>(PerCpu<Part<N>>);

impl<const N: usize> Counts<N> {
    /// Allocates the counts, which are 0. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn new() -> Result<Self> {
        Ok(Self(PerCpu::new()?))
    }

    /// Adds `n` to count `I`. Any context.
    #[inline(always)]
    pub fn add<const I: usize>(&self, n: u64) {
        const { assert!(I < N) };
        // SAFETY: By the invariants of `PerCpu`, and as `I` is below `N`, it is the per-CPU address
        // of counts that have this one, to which nothing else adds. They are the first field.
        unsafe { add_here::<I>(self.0.base.as_ptr().cast(), n) };
    }

    /// Adds 1 to count `I`. Any context.
    #[inline(always)]
    pub fn increment<const I: usize>(&self) {
        const { assert!(I < N) };
        // SAFETY: As for `add`.
        unsafe { increment_here::<I>(self.0.base.as_ptr().cast()) };
    }

    /// Returns the possible CPUs and their count `index` since it was [reset](Self::reset); none if
    /// there is no such count. What is counted meanwhile may be missing; what a CPU did before it
    /// counted is seen by who sees that.
    pub fn of_cpus(&self, index: usize) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.0.iter().filter_map(move |(cpu, part)| {
            let reset_at = part.reset_at.get(index)?.load(Ordering::Relaxed);
            let count = part.counts.get(index)?.load(Ordering::Acquire);
            Some((cpu, count.wrapping_sub(reset_at)))
        })
    }

    /// Returns the sum of count `index` since it was [reset](Self::reset); 0 if there is no such
    /// count. What is counted meanwhile may be missing.
    pub fn sum(&self, index: usize) -> u64 {
        self.of_cpus(index)
            .fold(0, |sum, (_, count)| sum.wrapping_add(count))
    }

    /// Resets all counts to 0. What is counted meanwhile is counted from there, or is before it.
    pub fn reset(&self) {
        for (_, part) in self.0.iter() {
            for (count, reset_at) in part.counts.iter().zip(&part.reset_at) {
                reset_at.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

/// Adds `n` to this CPU's count `I` of `counts`: by one instruction, which no interrupt divides and
/// in the middle of which no task migrates (`this_cpu_add()`).
///
/// # Safety
///
/// `counts` is the per-CPU address of valid counts, more than `I`. Nothing but this function and
/// [`increment_here`] adds to them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn add_here<const I: usize>(counts: *const AtomicU64, n: u64) {
    // SAFETY: By the function requirements; an aligned word is written as a whole. The kernel's
    // segment `gs` begins where this CPU's part of per-CPU addresses does.
    unsafe {
        core::arch::asm!(
            "add qword ptr gs:[{counts} + 8 * {i}], {n}",
            counts = in(reg) counts,
            i = const I,
            n = in(reg) n,
            options(nostack),
        );
    }
}

/// Adds 1 as [`add_here`] does; needs no register.
///
/// # Safety
///
/// As for [`add_here`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn increment_here<const I: usize>(counts: *const AtomicU64) {
    // SAFETY: As in `add_here`.
    unsafe {
        core::arch::asm!(
            "inc qword ptr gs:[{counts} + 8 * {i}]",
            counts = in(reg) counts,
            i = const I,
            options(nostack),
        );
    }
}

/// Adds `n` to this CPU's count `I` of `counts`.
///
/// # Safety
///
/// `counts` is the per-CPU address of valid counts, more than `I`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn add_here<const I: usize>(counts: *const AtomicU64, n: u64) {
    let count = counts.wrapping_byte_add(super::this_cpu_offset());
    // SAFETY: By the function requirements. A task that migrates meanwhile adds to another CPU's
    // count, hence an atomic addition.
    unsafe { &*count.wrapping_add(I) }.fetch_add(n, Ordering::SeqCst);
}

/// Adds 1 as [`add_here`] does.
///
/// # Safety
///
/// As for [`add_here`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn increment_here<const I: usize>(counts: *const AtomicU64) {
    // SAFETY: By the function requirements.
    unsafe { add_here::<I>(counts, 1) };
}
