// SPDX-License-Identifier: GPL-2.0

//! Major numbers of block devices.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use kernel::{
    bindings,
    prelude::*, //
};

/// A dynamically allocated major number, shown in `/proc/devices`. Dropping it frees the number.
///
/// Disks that use it should be removed before, as the number may be allocated again.
///
/// # Invariants
///
/// `number` was allocated by `__register_blkdev` for `name` and has not been freed.
pub struct Major {
    number: u32,
    name: &'static CStr,
}

impl Major {
    /// Registers `name` (at most 15 bytes are shown) with a free major number.
    ///
    /// Process context. Returns `EBUSY` when no number is free, `ENOMEM` if an allocation fails.
    pub fn register(name: &'static CStr) -> Result<Self> {
        // SAFETY: `name` is a NUL-terminated string; a missing probe function is allowed.
        let number = unsafe { bindings::__register_blkdev(0, name.as_char_ptr(), None) };
        match u32::try_from(number) {
            // INVARIANT: A positive result is the major number allocated for `name`.
            Ok(number) if number > 0 => Ok(Major { number, name }),
            Ok(_) => Err(EBUSY),
            Err(_) => Err(Error::from_errno(number)),
        }
    }

    /// Returns the number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Major {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, number and name are those of a live registration.
        unsafe { bindings::unregister_blkdev(self.number, self.name.as_char_ptr()) };
    }
}
