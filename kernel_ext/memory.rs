// SPDX-License-Identifier: GPL-2.0

//! The amounts of total and available memory, and what an allocation may wait for.
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

/// Runs `work`; what the task allocates in it, in whatever function, neither starts IO nor waits
/// for IO (`memalloc_noio_save()`). For work that IO waits for. Any context.
///
/// A function and not a guard, so that scopes cannot end in the wrong order.
pub fn without_io<R>(work: impl FnOnce() -> R) -> R {
    scope(false, work)
}

/// As [`without_io`], and what the task allocates in it does not wait for memory to be freed at
/// all: it may use the last of it (`memalloc_noreclaim_save()`), or fails.
///
/// For work without which no memory can be freed any more: a disk that dirty pages and swap are
/// waiting for is to be brought back. It must be bounded, for what it takes others lack: without
/// the reserve the network cannot receive either.
pub fn from_reserves<R>(work: impl FnOnce() -> R) -> R {
    scope(true, work)
}

fn scope<R>(reserves: bool, work: impl FnOnce() -> R) -> R {
    // SAFETY: sets flags of the running task.
    let saved = unsafe { kernel_ext_sys::kernel_ext_helper_memalloc_save(reserves) };
    let result = work();
    // SAFETY: clears the flags that were set above, in the same task.
    unsafe { kernel_ext_sys::kernel_ext_helper_memalloc_restore(saved) };
    result
}

/// Whether an allocation that may sleep could start IO, were it made now. Any context.
pub fn may_start_io() -> bool {
    // SAFETY: reads flags of the running task.
    unsafe { kernel_ext_sys::kernel_ext_helper_may_start_io() }
}
