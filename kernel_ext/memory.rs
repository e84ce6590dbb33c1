// SPDX-License-Identifier: GPL-2.0

//! How much memory the machine has.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use kernel::bindings;

/// Bytes of memory that the kernel manages. Any context.
pub fn total_bytes() -> u64 {
    let mut info = bindings::sysinfo::default();
    // SAFETY: fills the structure.
    unsafe { bindings::si_meminfo(&mut info) };
    // CAST: an `unsigned long`.
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}
