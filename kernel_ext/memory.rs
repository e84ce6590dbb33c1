// SPDX-License-Identifier: GPL-2.0

//! How much memory the machine has, and how much of it can be had.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use kernel::{
    bindings,
    page::PAGE_SIZE, //
};

/// Bytes of memory that the kernel manages. Any context.
pub fn total_bytes() -> u64 {
    let mut info = bindings::sysinfo::default();
    // SAFETY: fills the structure.
    unsafe { bindings::si_meminfo(&mut info) };
    // CAST: an `unsigned long`.
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

/// Bytes that can be allocated without pushing programs out of memory, as `MemAvailable` of
/// `/proc/meminfo`: an estimate. Any context.
pub fn available_bytes() -> u64 {
    // SAFETY: reads counters.
    let pages = unsafe { bindings::si_mem_available() };
    // CAST: not negative after the comparison.
    (pages.max(0) as u64).saturating_mul(PAGE_SIZE as u64)
}
