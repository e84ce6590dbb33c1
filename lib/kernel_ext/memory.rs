// SPDX-License-Identifier: GPL-2.0

//! The amounts of total and available memory, and scopes that limit the effects of allocations.
//!
//! C headers: [`include/linux/mm.h`](srctree/include/linux/mm.h),
//! [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use kernel::{
    bindings,
    page::PAGE_SIZE, //
};

/// Returns the bytes of memory that the kernel manages. Any context.
pub fn total_bytes() -> u64 {
    let mut info = bindings::sysinfo::default();
    // SAFETY: `info` is writable; `si_meminfo` fills it.
    unsafe { bindings::si_meminfo(&mut info) };
    // CAST: `totalram` is an `unsigned long`.
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

/// Returns an estimate of the bytes that can be allocated without swapping, as `MemAvailable` of
/// `/proc/meminfo`. Any context.
pub fn available_bytes() -> u64 {
    // SAFETY: The called function has no safety requirements; it only reads counters.
    let pages = unsafe { bindings::si_mem_available() };
    // CAST: The value is not negative after `max`.
    (pages.max(0) as u64).saturating_mul(PAGE_SIZE as u64)
}

/// Runs `work`, in which no allocation of the task, in any function, starts IO or waits for IO
/// (`memalloc_noio_save()`). For work that IO waits for. Any context.
///
/// A function and not a guard, so that scopes end in the right order.
pub fn without_io<R>(work: impl FnOnce() -> R) -> R {
    scope(false, work)
}

/// Runs `work` as [`without_io`]; in addition its allocations do not wait for reclaim: they may use
/// the memory reserves (`memalloc_noreclaim_save()`), or fail.
///
/// For work that frees memory, such as reconnecting a disk to which pages are swapped out. The work
/// must be bounded, as it shares the reserves: without them the network cannot receive either.
pub fn from_reserves<R>(work: impl FnOnce() -> R) -> R {
    scope(true, work)
}

fn scope<R>(reserves: bool, work: impl FnOnce() -> R) -> R {
    // SAFETY: The called function has no safety requirements; it sets flags of the current task.
    let saved = unsafe { kernel_ext_sys::kernel_ext_helper_memalloc_save(reserves) };
    let result = work();
    // SAFETY: `saved` is from the call above, in the same task.
    unsafe { kernel_ext_sys::kernel_ext_helper_memalloc_restore(saved) };
    result
}

/// Returns whether an allocation that may sleep can start IO in the current scope. Any context.
pub fn may_start_io() -> bool {
    // SAFETY: The called function has no safety requirements; it reads flags of the current task.
    unsafe { kernel_ext_sys::kernel_ext_helper_may_start_io() }
}
