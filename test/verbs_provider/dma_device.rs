// SPDX-License-Identifier: GPL-2.0

//! The device for which memory is mapped.

use core::ptr::NonNull;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    str::CStr, //
};
use verbs_provider_sys as helpers;

/// A platform device for which the consumers of an RDMA device map their memory. Its DMA addresses
/// are physical ones: of the consumer's pages, or of bounce buffers where the kernel forces them
/// (`swiotlb=force`).
///
/// # Invariants
///
/// `self.0` is a device that `verbs_provider_helper_add_dma_device` has added; `self` owns it.
pub struct DmaDevice(NonNull<bindings::device>);

// SAFETY: Any thread may remove a device.
unsafe impl Send for DmaDevice {}
// SAFETY: There is no method that changes the device.
unsafe impl Sync for DmaDevice {}

impl DmaDevice {
    /// Adds a device of this name, with a number behind it. Of an address, bounce buffers keep the
    /// bits of `min_align_mask`. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if its DMA addresses are those of an IOMMU.
    pub fn new(name: &CStr, min_align_mask: u32) -> Result<Self> {
        // SAFETY: The name ends in NUL. The function copies it.
        let raw = unsafe {
            helpers::verbs_provider_helper_add_dma_device(name.as_char_ptr(), min_align_mask)
        };
        // INVARIANT: The device was just added.
        Ok(Self(NonNull::new(from_err_ptr(raw)?).ok_or(ENODEV)?))
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::device {
        self.0.as_ptr()
    }
}

impl Drop for DmaDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns the device.
        unsafe { helpers::verbs_provider_helper_remove_dma_device(self.0.as_ptr()) };
    }
}
