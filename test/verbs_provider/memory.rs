// SPDX-License-Identifier: GPL-2.0

//! Memory that a consumer has named.

use crate::sys;
use core::{
    marker::PhantomData,
    ptr, //
};
use verbs_provider_sys as helpers;

/// The meaning of the addresses by which the consumers of an RDMA device name memory: those of its
/// [`DmaDevice`](crate::DmaDevice) or, without one, the kernel's.
///
/// # Invariants
///
/// `dma_device` is null, or that of a [`DmaDevice`](crate::DmaDevice) that outlives `'a`.
#[derive(Clone, Copy)]
pub(crate) struct AddressSpace<'a> {
    dma_device: *mut kernel::bindings::device,
    _device: PhantomData<&'a sys::ib_device>,
}

impl AddressSpace<'_> {
    /// # Safety
    ///
    /// The caller must ensure that `device` is that of a [`Registration`](crate::Registration)
    /// that outlives the result.
    pub(crate) unsafe fn of(device: *const sys::ib_device) -> Self {
        // INVARIANT: A registration owns the DMA device that it has registered with its device.
        Self {
            // SAFETY: By the function requirements. The pointer does not change.
            dma_device: unsafe { (*device).dma_device },
            _device: PhantomData,
        }
    }

    /// Returns the memory that a consumer has named.
    ///
    /// # Safety
    ///
    /// The caller must ensure that a consumer has just named it, in this space.
    pub(crate) unsafe fn range(self, addr: u64, len: u64) -> DmaRange {
        let kernel_addr = if self.dma_device.is_null() {
            addr
        } else {
            // SAFETY: By the type invariants, the device is that of a `DmaDevice`. By the function
            // requirements, memory is mapped for it at the address.
            let kernel =
                unsafe { helpers::verbs_provider_helper_dma_to_virt(self.dma_device, addr) };
            kernel.expose_provenance() as u64
        };
        // INVARIANT: By the function requirements. The DMA addresses of a `DmaDevice` are physical
        // ones, and the kernel's of a mapped range are as contiguous as they are.
        DmaRange {
            addr,
            kernel_addr,
            len,
        }
    }
}

/// A range of memory that a consumer has named in a work request or in a registration.
///
/// # Invariants
///
/// `kernel_addr` is the kernel's address of `len` bytes that the consumer names by `addr`. By the
/// contract of verbs they are mapped until the work request has completed or the registration has
/// ended. By the safety requirements of [`Provider`](crate::Provider), to which alone ranges are
/// given, the bytes are not accessed after that.
#[derive(Clone, Copy)]
pub struct DmaRange {
    addr: u64,
    kernel_addr: u64,
    len: u64,
}

/// The extent of a region, as a registration gives it.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The address of the first byte.
    pub iova: u64,
    /// The length in bytes.
    pub len: u64,
    /// The size of a page.
    pub page_bytes: u32,
}

impl DmaRange {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Returns the address by which the consumer names it, for accesses through a registered key.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns `len` bytes from `offset` on; [`None`] if they are not within the range.
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // INVARIANT: A part of memory that a consumer has named.
        Some(Self {
            addr: self.addr.checked_add(offset)?,
            kernel_addr: self.kernel_addr.checked_add(offset)?,
            len,
        })
    }

    /// Copies `self` to `target`, up to the shorter length, as the device does.
    pub fn copy_to(&self, target: &Self) {
        let len = self.len.min(target.len);
        let (Ok(from), Ok(to), Ok(len)) = (
            usize::try_from(self.kernel_addr),
            usize::try_from(target.kernel_addr),
            usize::try_from(len),
        ) else {
            return;
        };
        // SAFETY: By the type invariants, both are memory of the kernel, which is still mapped, as
        // the provider accesses it. Consumers treat it as memory that a device changes, so no
        // reference to it exists. `copy` allows overlaps.
        unsafe {
            ptr::copy(
                ptr::with_exposed_provenance::<u8>(from),
                ptr::with_exposed_provenance_mut::<u8>(to),
                len,
            );
        }
    }

    /// Flips a bit of the range, if it has so many, as a device does that is broken.
    pub fn flip(&self, bit: u64) {
        let Some(byte) = self.part(bit / 8, 1) else {
            return;
        };
        let Ok(at) = usize::try_from(byte.kernel_addr) else {
            return;
        };
        let at = ptr::with_exposed_provenance_mut::<u8>(at);
        // SAFETY: By the type invariants, the byte is memory of the kernel, which is still mapped,
        // as the provider accesses it. Consumers treat it as memory that a device changes.
        unsafe { at.write_volatile(at.read_volatile() ^ 1 << (bit % 8)) };
    }

    /// Copies `bytes` to the start of the range, and returns the rest.
    pub fn fill(&self, bytes: &[u8]) -> Option<Self> {
        let len = u64::try_from(bytes.len()).ok()?;
        let rest = self.part(len, self.len.checked_sub(len)?)?;
        let to = usize::try_from(self.kernel_addr).ok()?;
        // SAFETY: By the type invariants, the range is memory of the kernel, which is still mapped,
        // as the provider accesses it, and it is not shorter than `bytes`, which are the caller's
        // own.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                ptr::with_exposed_provenance_mut::<u8>(to),
                bytes.len(),
            );
        }
        Some(rest)
    }
}
