// SPDX-License-Identifier: GPL-2.0

//! Memory that a consumer has named.

use core::ptr;

/// A range of memory that a consumer has named in a work request or in a registration.
///
/// # Invariants
///
/// `addr` is the kernel's address of `len` bytes, as devices without a DMA device have it. By the
/// contract of verbs they are mapped until the work request has completed or the registration has
/// ended. By the safety requirements of [`Provider`](crate::Provider), to which alone ranges are
/// given, the bytes are not accessed after that.
#[derive(Clone, Copy)]
pub struct DmaRange {
    addr: u64,
    len: u64,
}

/// What a registration says of its pages.
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
    /// # Safety
    ///
    /// The caller must ensure that a consumer has just named this memory.
    pub(crate) unsafe fn new(addr: u64, len: u64) -> Self {
        // INVARIANT: By the function requirements.
        Self { addr, len }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Returns the address, for accesses through a registered key.
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
            len,
        })
    }

    /// Copies `self` to `target`, up to the shorter length, as the device does.
    pub fn copy_to(&self, target: &Self) {
        let len = self.len.min(target.len);
        let (Ok(from), Ok(to), Ok(len)) = (
            usize::try_from(self.addr),
            usize::try_from(target.addr),
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

    /// Copies `bytes` to the start of the range, and returns the rest.
    pub fn fill(&self, bytes: &[u8]) -> Option<Self> {
        let len = u64::try_from(bytes.len()).ok()?;
        let rest = self.part(len, self.len.checked_sub(len)?)?;
        let to = usize::try_from(self.addr).ok()?;
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
