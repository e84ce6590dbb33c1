// SPDX-License-Identifier: GPL-2.0

//! The amounts of total and available memory.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

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
