// SPDX-License-Identifier: GPL-2.0

//! Numbers of CPUs.
//!
//! C header: [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h)

pub use kernel::cpu::nr_cpu_ids;

/// How many CPUs are online now. It may change at any time.
pub fn num_online_cpus() -> u32 {
    // SAFETY: no requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_num_online_cpus() }
}
