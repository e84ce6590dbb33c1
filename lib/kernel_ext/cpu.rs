// SPDX-License-Identifier: GPL-2.0

//! The number of online CPUs, and whether the current one takes interrupts.
//!
//! C header: [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h)

pub use kernel::cpu::nr_cpu_ids;

/// Returns how many CPUs are online now. It may change at any time.
pub fn num_online_cpus() -> u32 {
    // SAFETY: The called function has no safety requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_num_online_cpus() }
}

/// Returns whether interrupts are disabled on this CPU.
pub fn irqs_disabled() -> bool {
    // SAFETY: The called function has no safety requirements.
    unsafe { kernel_ext_sys::kernel_ext_helper_irqs_disabled() }
}
