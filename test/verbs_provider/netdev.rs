// SPDX-License-Identifier: GPL-2.0

//! The network device of a port.

use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*,
    str::CStr, //
};
use verbs_provider_sys as helpers;

/// A reference to a network device of the first namespace.
///
/// # Invariants
///
/// `self.0` is a network device, of which `self` owns a reference.
pub struct NetDevice(NonNull<bindings::net_device>);

// SAFETY: Any thread may drop the reference.
unsafe impl Send for NetDevice {}
// SAFETY: There is no method that uses the device.
unsafe impl Sync for NetDevice {}

impl NetDevice {
    /// Looks up the device of this name.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is none.
    pub fn find(name: &CStr) -> Result<Self> {
        // SAFETY: The name ends in NUL. The function takes a reference.
        let raw = unsafe { helpers::verbs_provider_helper_find_netdev(name.as_char_ptr()) };
        // INVARIANT: The reference was just taken.
        Ok(Self(NonNull::new(raw.cast()).ok_or(ENODEV)?))
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.as_ptr()
    }
}

impl Drop for NetDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns the reference.
        unsafe { helpers::verbs_provider_helper_put_netdev(self.0.as_ptr().cast()) };
    }
}
