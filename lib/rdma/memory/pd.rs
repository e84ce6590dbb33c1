// SPDX-License-Identifier: GPL-2.0

//! Protection domains, and the rule that keeps posted memory alive.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    address_handle::retirement::Handles,
    device::Device,
    memory::{
        message_buffers::SlotMemory, //
        mr::MrMemory,
        page_mapping::MappedMemory,
    },
    sys, //
};
use core::{mem, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// A protection domain: queue pairs reach the memory of their own domain only.
///
/// # Memory that was posted
///
/// A work request names memory by its address, and the device may use that memory until the request
/// completes. Hence [`MessageBuffers`](crate::MessageBuffers), [`Mr`](crate::Mr) and
/// [`PageMapping`](crate::PageMapping) belong to a domain, and when one of them is dropped while a
/// queue pair of its domain exists, its memory (and the region) is kept and freed together with the
/// domain's last queue pair. Safe code can therefore not free memory that a device may still touch.
///
/// An [`AddressHandle`](crate::AddressHandle) is no memory that a device writes, and there may be
/// many, one after the other: it goes earlier, when no send uses it.
///
/// # Invariants
///
/// - `raw` is a protection domain of `device` that `self` owns.
/// - `keep.retired` is empty when there is neither a queue pair nor a thread that is destroying
///   one.
/// - The capacity of `keep.retired` is at least its length plus `keep.handles`.
#[pin_data(PinnedDrop)]
pub struct Pd {
    raw: NonNull<sys::ib_pd>,
    device: Device,
    #[pin]
    keep: Mutex<Keep>,
    #[pin]
    handles: Handles,
}

/// An object that was dropped while queue pairs of the domain existed; dropping this frees its
/// memory.
#[expect(dead_code, reason = "held for its drop only")]
pub(crate) enum Retired {
    Slots(SlotMemory),
    Mr(MrMemory),
    Pages(MappedMemory),
}

struct Keep {
    queue_pairs: usize,
    /// The number of queue pairs that are not drained.
    undrained: usize,
    /// The [`Drained`] that exist.
    proofs: usize,
    handles: usize,
    retired: KVVec<Retired>,
}

// SAFETY: Any thread may use and free a protection domain.
unsafe impl Send for Pd {}
// SAFETY: The users of the C object do not change it, and `keep` has a lock.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain on `device` (`ib_alloc_pd()`). Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `ib_alloc_pd()`.
    pub fn new(device: &Device) -> Result<Arc<Self>> {
        // SAFETY: The device is valid, and the name is a static string.
        let raw = from_err_ptr(unsafe {
            sys::__ib_alloc_pd(device.as_raw(), 0, crate::CALLER.as_char_ptr())
        })?;
        let guard = RawPd(NonNull::new(raw).ok_or(ENOMEM)?);
        let pd = Arc::pin_init(
            pin_init!(Pd {
                raw: guard.0,
                device: device.clone(),
                keep <- new_mutex!(Keep {
                    queue_pairs: 0,
                    undrained: 0,
                    proofs: 0,
                    handles: 0,
                    retired: KVVec::new(),
                }),
                handles <- Handles::new(),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The domain belongs to `pd` from here on.
        mem::forget(guard);
        Ok(pd)
    }

    /// Returns the device of the domain.
    #[inline(always)]
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[inline(always)]
    pub(crate) fn as_raw(&self) -> *mut sys::ib_pd {
        self.raw.as_ptr()
    }

    /// Returns the key that covers all DMA-mapped memory, for local use only.
    #[inline(always)]
    pub fn local_dma_key(&self) -> u32 {
        // SAFETY: By the type invariants, the domain is valid; the key never changes.
        unsafe { (*self.raw.as_ptr()).local_dma_lkey }
    }

    /// Returns the address handles that were dropped.
    #[inline(always)]
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Returns the number of [address handles](crate::AddressHandle) that were dropped and that
    /// sends may still use. Sleeps.
    pub fn waiting_handles(&self) -> usize {
        self.handles.waiting()
    }

    /// Counts an object, and reserves the memory to retire it later without a failure. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing is counted then.
    pub(crate) fn add_handle(&self) -> Result {
        let mut keep = self.keep.lock();
        let handles = keep.handles.checked_add(1).ok_or(EOVERFLOW)?;
        // INVARIANT: The capacity covers all handles after this.
        keep.retired.reserve(handles, GFP_KERNEL)?;
        keep.handles = handles;
        Ok(())
    }

    /// Ends a handle: its memory is freed now, or with the last queue pair of the domain.
    pub(crate) fn retire(&self, item: Retired) {
        let mut keep = self.keep.lock();
        keep.handles = keep.handles.saturating_sub(1);
        if keep.queue_pairs == 0 {
            drop(keep);
            drop(item);
        } else if let Err(error) = keep.retired.push_within_capacity(item) {
            // Unreachable by the type invariants. A leak is safe.
            mem::forget(error);
        }
    }

    /// Ends a handle without memory.
    pub(crate) fn cancel_handle(&self) {
        let mut keep = self.keep.lock();
        keep.handles = keep.handles.saturating_sub(1);
    }

    /// Returns the proof that all queue pairs of the domain are drained; [`None`] if one is not. No
    /// queue pair can be created on the domain, or started again, while it exists.
    pub fn drained(&self) -> Option<Drained<'_>> {
        let mut keep = self.keep.lock();
        if keep.undrained != 0 {
            return None;
        }
        keep.proofs = keep.proofs.checked_add(1)?;
        drop(keep);
        // INVARIANT: No queue pair is left that is not drained, and `proofs` refuses new ones.
        Some(Drained(self))
    }

    /// Counts a queue pair that is about to be created; `EBUSY` while there is a [`Drained`].
    pub(crate) fn queue_pair_created(&self) -> Result {
        let mut keep = self.keep.lock();
        if keep.proofs != 0 {
            return Err(EBUSY);
        }
        keep.queue_pairs = keep.queue_pairs.saturating_add(1);
        keep.undrained = keep.undrained.saturating_add(1);
        Ok(())
    }

    /// Counts a queue pair that was drained and is about to be started again; `EBUSY` while there
    /// is a [`Drained`].
    pub(crate) fn queue_pair_restarted(&self) -> Result {
        let mut keep = self.keep.lock();
        if keep.proofs != 0 {
            return Err(EBUSY);
        }
        keep.undrained = keep.undrained.saturating_add(1);
        Ok(())
    }

    /// Counts a queue pair whose work requests have all completed, and that takes no more. Once
    /// for each start, before [`Self::queue_pair_destroyed`].
    pub(crate) fn queue_pair_drained(&self) {
        let mut keep = self.keep.lock();
        keep.undrained = keep.undrained.saturating_sub(1);
    }

    pub(crate) fn queue_pair_destroyed(&self) {
        {
            let mut keep = self.keep.lock();
            keep.queue_pairs = keep.queue_pairs.saturating_sub(1);
        }
        // Frees one object at a time and outside the lock, as freeing a region may retire its
        // pages. The list keeps its capacity. A queue pair that is created meanwhile ends the loop;
        // its destruction frees the rest.
        loop {
            let mut keep = self.keep.lock();
            if keep.queue_pairs != 0 {
                return;
            }
            let Some(item) = keep.retired.pop() else {
                return;
            };
            drop(keep);
            drop(item);
        }
    }
}

/// Proof that no work request, and no packet of a peer, uses memory of a domain: all its queue
/// pairs are drained.
///
/// # Invariants
///
/// All queue pairs of the domain are drained while `self` exists: it is counted in `proofs`.
pub struct Drained<'a>(&'a Pd);

impl Drained<'_> {
    /// Returns whether it is about memory of `pd`.
    pub fn is_of(&self, pd: &Pd) -> bool {
        core::ptr::eq(self.0, pd)
    }
}

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        let mut keep = self.0.keep.lock();
        keep.proofs = keep.proofs.saturating_sub(1);
    }
}

#[pinned_drop]
impl PinnedDrop for Pd {
    fn drop(self: Pin<&mut Self>) {
        // Every handle and every queue pair holds an `Arc` of the domain, so none is left, and by
        // the type invariants, and those of `handles`, nothing is retired.
        drop(RawPd(self.raw));
    }
}

/// An allocated protection domain that no longer, or not yet, belongs to a [`Pd`].
///
/// # Invariants
///
/// The domain is valid and owned.
struct RawPd(NonNull<sys::ib_pd>);

impl Drop for RawPd {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns the domain, and nothing uses it any more.
        // Freeing a kernel-owned domain cannot fail.
        let _ = unsafe { sys::ib_dealloc_pd_user(self.0.as_ptr(), core::ptr::null_mut()) };
    }
}
