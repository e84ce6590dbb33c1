// SPDX-License-Identifier: GPL-2.0

//! The CPUs: how many there are, and whether this one takes interrupts.
//!
//! C header: [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h)

pub use kernel::cpu::nr_cpu_ids;

/// How many CPUs are online now. It may change at any time.
pub fn num_online_cpus() -> u32 {
    // SAFETY: no requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_num_online_cpus() }
}

/// Whether interrupts are disabled on this CPU.
pub fn irqs_disabled() -> bool {
    // SAFETY: no requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_irqs_disabled() }
}
