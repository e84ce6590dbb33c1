// SPDX-License-Identifier: GPL-2.0

//! Knows whether there is swap on a disk: then memory may be freed only when its requests end, and
//! what they wait for may use the kernel's reserves of memory.
//!
//! The block layer tells of swap on the disk itself and on its partitions. It does not tell of a
//! file on the disk, or of a device on top of it; the first page that is swapped out does.

use kernel_ext::sync::atomic::Ordering::Relaxed;

use super::Device;

impl Device {
    /// Returns whether there is swap on the disk, or on what lies on it, as far as requests have
    /// shown since it was mapped. Sleeps.
    pub(crate) fn carries_swap(&self) -> bool {
        let is_swapped_to = || {
            let inner = self.lock();
            let mapped_disk = inner.mapped_disk.as_ref();
            mapped_disk.is_some_and(|mapped_disk| mapped_disk.disk().is_swapped_to())
        };
        self.has_swapped.load(Relaxed) || is_swapped_to()
    }

    /// Notes that a request swaps a page out.
    #[cold]
    pub(crate) fn note_swap(&self) {
        // The line is written once: requests of all CPUs come here.
        if !self.has_swapped.load(Relaxed) {
            self.has_swapped.store(true, Relaxed);
        }
    }
}
