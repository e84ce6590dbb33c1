// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod port;

pub use self::port::{
    GidKind,
    PortState, //
};

use crate::{
    address_handle::Gid,
    sys, //
};
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    str::CStr, //
};

/// A reference to a registered RDMA device, which prevents its removal.
///
/// Every object of this crate that lives on a device holds one of these. It counts `refcount` of
/// `ib_core`: unregistering the device waits until the last one is dropped. When a device is
/// removed, every [`CmId`](crate::cm::CmId) on it gets
/// [`Event::DeviceRemoval`](crate::cm::Event::DeviceRemoval), upon which the user closes and drops
/// all objects on the device.
///
/// # Invariants
///
/// `self.0` points to a registered `struct ib_device`, and `self` owns one count of its `refcount`.
pub struct Device(NonNull<sys::ib_device>);

// SAFETY: Any thread may drop the count.
unsafe impl Send for Device {}
// SAFETY: The methods only read fields that do not change while the device is registered.
unsafe impl Sync for Device {}

impl Device {
    /// Takes a reference to `raw`; returns [`None`] if the device is being unregistered.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `raw` points to a device whose memory is valid during the call.
    pub(crate) unsafe fn try_get(raw: *mut sys::ib_device) -> Option<Self> {
        let raw = NonNull::new(raw)?;
        // SAFETY: By the function requirements, the device is valid.
        if !unsafe { sys::rdma_helper_device_try_get(raw.as_ptr()) } {
            return None;
        }
        // INVARIANT: The count was just taken, which works for registered devices only.
        Some(Self(raw))
    }

    /// Returns the C device.
    #[inline(always)]
    pub(crate) fn as_raw(&self) -> *mut sys::ib_device {
        self.0.as_ptr()
    }

    /// Returns the attributes, which do not change while the device is registered.
    #[inline(always)]
    fn attributes(&self) -> &sys::ib_device_attr {
        // SAFETY: By the type invariants, the device is valid and registered as long as `self`. The
        // reference covers the attributes only, and not what C changes beside them.
        unsafe { &(*self.as_raw()).attrs }
    }

    /// Returns a copy of the device's name, for instance `rxe0` or `mlx5_0`. An administrator may
    /// rename a device at any time.
    pub fn name(&self) -> DeviceName {
        // SAFETY: By the type invariants, the device is valid.
        let name = unsafe { &raw const (*self.as_raw()).name };
        let mut copy = [0; NAME_LEN];
        // The last byte stays 0.
        for (index, byte) in copy.iter_mut().take(NAME_LEN - 1).enumerate() {
            // SAFETY: The index is within the array. `ib_device_rename()` may write meanwhile: a
            // volatile read of a byte is what the kernel's memory model calls READ_ONCE.
            *byte = unsafe { name.cast::<u8>().add(index).read_volatile() };
        }
        DeviceName(copy)
    }

    /// Returns a global identifier of a port; the numbers of ports begin with 1.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such port, or nothing at this index.
    pub fn gid(&self, port: u8, index: u8) -> Result<Gid> {
        let mut gid = sys::ib_gid::default();
        // SAFETY: The device is valid; the function writes a whole identifier.
        to_result(unsafe {
            sys::rdma_query_gid(self.as_raw(), port.into(), index.into(), &mut gid)
        })?;
        // SAFETY: All bytes of the union are initialised, whichever member was written.
        Ok(Gid(unsafe { gid.raw }))
    }

    /// Returns the largest number of work requests in one queue.
    pub fn max_qp_wr(&self) -> u32 {
        self.attributes().max_qp_wr.try_into().unwrap_or(0)
    }

    /// Returns the largest number of entries of a completion queue.
    pub fn max_cqe(&self) -> u32 {
        self.attributes().max_cqe.try_into().unwrap_or(0)
    }

    /// Returns the largest number of pages of a fast-registration memory region.
    pub fn max_fast_reg_pages(&self) -> u32 {
        self.attributes().max_fast_reg_page_list_len
    }

    /// Returns the sizes in bytes that pages of a memory region can have: the sum of these powers
    /// of two.
    pub fn page_sizes(&self) -> u64 {
        self.attributes().page_size_cap
    }

    /// Returns whether memory can be registered and invalidated by work requests
    /// (`IB_DEVICE_MEM_MGT_EXTENSIONS`).
    pub fn fast_registration(&self) -> bool {
        // CAST: One bit of 64.
        let flag = sys::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
        self.attributes().device_cap_flags & flag != 0
    }

    /// Returns whether the device is an iWARP device.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { sys::rdma_helper_is_iwarp(self.as_raw()) }
    }

    /// Returns the largest number of segments of a send work request.
    pub fn max_send_sge(&self) -> u32 {
        self.attributes().max_send_sge.try_into().unwrap_or(0)
    }

    /// Returns the largest number of segments of an RDMA read.
    pub fn max_read_sge(&self) -> u32 {
        self.attributes().max_sge_rd.try_into().unwrap_or(0)
    }

    /// Returns whether mapped memory begins at the same offset of a page for the device. Bounce
    /// buffers do so only if the adapter's driver asks for it (`dma_set_min_align_mask()`).
    pub fn keeps_page_offsets(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { sys::rdma_helper_keeps_page_offsets(self.as_raw()) }
    }

    /// Returns the number of completion vectors (interrupts), at least 1.
    pub(crate) fn comp_vectors(&self) -> u32 {
        // SAFETY: By the type invariants, the device is valid; the number does not change.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        vectors.try_into().unwrap_or(1).max(1)
    }

    /// Returns whether the device is implemented in software, so that DMA addresses are virtual
    /// addresses and need no synchronisation (`ib_uses_virt_dma()`).
    #[inline(always)]
    pub(crate) fn virt_dma(&self) -> bool {
        // SAFETY: By the type invariants, the device is valid; the pointer does not change.
        unsafe { (*self.as_raw()).dma_device.is_null() }
    }
}

/// The bytes of a device's name, the terminating NUL included.
const NAME_LEN: usize = sys::IB_DEVICE_NAME_MAX as usize;

/// The name that a device had.
#[derive(Clone, Copy)]
pub struct DeviceName([u8; NAME_LEN]);

impl Deref for DeviceName {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

impl Clone for Device {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants, the device is valid.
        let taken = unsafe { sys::rdma_helper_device_try_get(self.0.as_ptr()) };
        debug_assert!(taken);
        // INVARIANT: `self` owns a count, so the count was not zero and one more was taken.
        Self(self.0)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns one count, which is dropped here.
        unsafe { sys::ib_device_put(self.0.as_ptr()) };
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Device {}
