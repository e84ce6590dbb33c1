// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! Queues are allocated and not taken from the device's pool (`ib_cq_pool_get()`): the pool frees
//! its queues at device removal, without waiting for their users, and never before.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{device::Device, sys};
use core::{
    ffi::c_void,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{AtomicBool, Ordering};

/// The context in which completions are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollContext {
    /// In softirq context: handlers must not sleep.
    Softirq,
    /// In process context, on a work queue bound to the CPU of the interrupt.
    Workqueue,
    /// Only by [`Cq::poll`], in the caller's context; there are no interrupts.
    Direct,
}

impl PollContext {
    fn as_raw(self) -> sys::ib_poll_context {
        match self {
            Self::Softirq => sys::ib_poll_context_IB_POLL_SOFTIRQ,
            Self::Workqueue => sys::ib_poll_context_IB_POLL_WORKQUEUE,
            Self::Direct => sys::ib_poll_context_IB_POLL_DIRECT,
        }
    }
}

/// The handler of notifications of a queue whose notification was [requested](Cq::request_notify).
pub trait Notify: Send + Sync + 'static {
    /// Handles a notification: the queue has completions to [poll](Cq::poll). Any context, hard
    /// interrupts included.
    fn notify(&self);
}

/// A completion queue. Dropping the last reference sleeps and must not happen in a completion
/// handler of the queue. Queue pairs hold references.
///
/// # Invariants
///
/// `raw` is a completion queue of `_device`, allocated with `context` and owned by `self`. If
/// `wake` is set, the handler is [`wake_up`] with the content of the box.
pub struct Cq {
    raw: NonNull<sys::ib_cq>,
    context: PollContext,
    wake: Option<KBox<Arc<dyn Notify>>>,
    /// A thread is in [`Self::poll`].
    polled: AtomicBool,
    _device: Device,
}

// SAFETY: Any thread may use and free a completion queue.
unsafe impl Send for Cq {}
// SAFETY: Drivers serialise polling by their own lock.
unsafe impl Sync for Cq {}

impl Cq {
    /// Allocates a queue of `entries` completions (`ib_alloc_cq()`). Sleeps.
    ///
    /// `entries` must cover every send and receive of every queue pair on it, and two more per
    /// queue pair ([`QpConfig::cq_entries`](crate::QpConfig::cq_entries)). `vector` selects the
    /// interrupt, modulo the number of vectors. Returns `EINVAL` if the device has no queues of
    /// that length.
    pub fn new(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
    ) -> Result<Arc<Self>> {
        let queue = Self::alloc(device, entries, vector, context, None)?;
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    /// As [`new`](Self::new) with [`PollContext::Direct`], for a queue whose
    /// notification can be [requested](Self::request_notify) where polling alone is not enough.
    pub fn polled_with_notify(
        device: &Device,
        entries: u32,
        vector: u32,
        wake: Arc<dyn Notify>,
    ) -> Result<Arc<Self>> {
        let wake = KBox::new(wake, GFP_KERNEL)?;
        let queue = Self::alloc(device, entries, vector, PollContext::Direct, Some(wake))?;
        if let Some(told) = &queue.wake {
            let context = ptr::from_ref(&**told).cast_mut().cast();
            // SAFETY: The queue is valid and not armed yet. The context is in a box that is freed
            // after the queue.
            unsafe { sys::rdma_helper_cq_wake(queue.raw.as_ptr(), Some(wake_up), context) };
        }
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    fn alloc(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
        wake: Option<KBox<Arc<dyn Notify>>>,
    ) -> Result<Self> {
        if entries == 0 || entries > device.max_cqe() {
            return Err(EINVAL);
        }
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        let vector = vector.checked_rem(device.comp_vectors()).unwrap_or(0);
        // SAFETY: The device is valid and has the vector; the name is a static string.
        let raw = from_err_ptr(unsafe {
            sys::__ib_alloc_cq(
                device.as_raw(),
                ptr::null_mut(),
                entries,
                vector.try_into().unwrap_or(0),
                context.as_raw(),
                crate::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The queue was just allocated and has no other owner. If the allocation of the
        // `Arc` fails, the drop of the `Cq` frees it.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            context,
            wake,
            polled: AtomicBool::new(false),
            _device: device.clone(),
        })
    }

    /// Requests one notification of its [`Notify`] for the next completion (`ib_req_notify_cq()`).
    /// Returns whether the queue already has completions, which the caller polls first. Does
    /// nothing for a queue that was not made by
    /// [`polled_with_notify`](Self::polled_with_notify). Any context.
    pub fn request_notify(&self) -> bool {
        if self.wake.is_none() {
            return false;
        }
        // SAFETY: By the type invariants, the queue is valid and its handler is `wake_up`.
        unsafe { sys::rdma_helper_req_notify_cq(self.raw.as_ptr()) > 0 }
    }

    /// Handles up to `budget` completions in the caller's context and returns their number.
    ///
    /// Does nothing for a queue that is not [`PollContext::Direct`], or while another thread polls
    /// it: completions of one queue are always handled one at a time, in order. Any context that
    /// the handlers allow.
    #[inline]
    pub fn poll(&self, budget: u32) -> u32 {
        if self.context != PollContext::Direct || self.polled.swap(true, Ordering::Acquire) {
            return 0;
        }
        let budget = i32::try_from(budget).unwrap_or(i32::MAX);
        // SAFETY: By the type invariants, the queue is valid. The budget is not negative.
        let done = unsafe { sys::ib_process_cq_direct(self.raw.as_ptr(), budget) };
        self.polled.store(false, Ordering::Release);
        u32::try_from(done).unwrap_or(0)
    }

    /// Returns the context in which the queue's completions are handled.
    pub fn context(&self) -> PollContext {
        self.context
    }

    pub(crate) fn as_raw(&self) -> *mut sys::ib_cq {
        self.raw.as_ptr()
    }
}

/// Handles the notification of a queue made by [`Cq::polled_with_notify`].
///
/// # Safety
///
/// Must only be called by the core, for a queue whose context is the content of [`Cq::wake`].
unsafe extern "C" fn wake_up(_cq: *mut sys::ib_cq, context: *mut c_void) {
    // SAFETY: By the function requirements; the box lives until the queue is freed.
    let wake = unsafe { &*context.cast::<Arc<dyn Notify>>() };
    wake.notify();
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns the queue. Every queue pair on it holds an
        // `Arc`, so none is left.
        unsafe { sys::ib_free_cq(self.raw.as_ptr()) };
    }
}
