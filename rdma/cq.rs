// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! Queues are allocated for their user and not taken from the device's pool (`ib_cq_pool_get()`):
//! the pool frees its queues at device removal without waiting for their users, and never before.
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

/// Where completions are handled.
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

/// Who is told that a queue which was [armed](Cq::arm) has a completion.
pub trait Wake: Send + Sync + 'static {
    /// There is something to [poll](Cq::poll). Any context, hard interrupts included.
    fn wake(&self);
}

/// A completion queue. Dropping the last reference sleeps and must not happen in a completion
/// handler of the queue; queue pairs hold references, so this is only their creator's concern.
///
/// # Invariants
///
/// `raw` is a completion queue of `_device`, allocated with `context` and owned by `self`. If there
/// is `wake`, then its handler is [`wake_up`] with the content of the box.
pub struct Cq {
    raw: NonNull<sys::ib_cq>,
    context: PollContext,
    wake: Option<KBox<Arc<dyn Wake>>>,
    /// Somebody is in [`Self::poll`].
    polled: AtomicBool,
    _device: Device,
}

// SAFETY: A completion queue may be used and freed by any thread.
unsafe impl Send for Cq {}
// SAFETY: Drivers serialise polling by a lock of their own.
unsafe impl Sync for Cq {}

impl Cq {
    /// Allocates a queue of `entries` completions (`ib_alloc_cq()`). Sleeps.
    ///
    /// `entries` must cover every send and receive of every queue pair on it and two more a queue
    /// pair ([`QpConfig::cq_entries`](crate::QpConfig::cq_entries)); `EINVAL` if the device has no
    /// queues of that length. `vector` spreads queues over interrupts and is taken modulo their
    /// number.
    pub fn new(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
    ) -> Result<Arc<Self>> {
        let queue = Self::alloc(device, entries, vector, context, None)?;
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    /// As [`new`](Self::new) with [`PollContext::Direct`]; where polling alone is not enough, the
    /// queue can be [armed](Self::arm).
    pub fn quiet(
        device: &Device,
        entries: u32,
        vector: u32,
        wake: Arc<dyn Wake>,
    ) -> Result<Arc<Self>> {
        let wake = KBox::new(wake, GFP_KERNEL)?;
        let queue = Self::alloc(device, entries, vector, PollContext::Direct, Some(wake))?;
        if let Some(told) = &queue.wake {
            let context = ptr::from_ref(&**told).cast_mut().cast();
            // SAFETY: The queue is valid and not armed yet. The context lives in a box that is
            // freed after the queue.
            unsafe { sys::rdma_helper_cq_wake(queue.raw.as_ptr(), Some(wake_up), context) };
        }
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    fn alloc(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
        wake: Option<KBox<Arc<dyn Wake>>>,
    ) -> Result<Self> {
        if entries == 0 || entries > device.max_cqe() {
            return Err(EINVAL);
        }
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        let vector = vector.checked_rem(device.comp_vectors()).unwrap_or(0);
        // SAFETY: The device is valid, the vector one that it has, and the name a static string.
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
        // INVARIANT: The queue was just allocated and has no other owner; if there is no memory for
        // an `Arc`, the drop of the `Cq` frees it.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            context,
            wake,
            polled: AtomicBool::new(false),
            _device: device.clone(),
        })
    }

    /// Has its [`Wake`] told of the next completion, once (`ib_req_notify_cq()`); says whether
    /// there are some already, to be polled first. Does nothing for a queue that is not
    /// [quiet](Self::quiet). Any context.
    pub fn arm(&self) -> bool {
        if self.wake.is_none() {
            return false;
        }
        // SAFETY: By the type invariants the queue is valid, and its handler is ours.
        unsafe { sys::rdma_helper_req_notify_cq(self.raw.as_ptr()) > 0 }
    }

    /// Handles up to `budget` completions in the caller's context and returns how many there were.
    ///
    /// Does nothing for a queue that is not [`PollContext::Direct`], or while somebody else polls
    /// it: completions of one queue are always handled one after the other, in their order. Any
    /// context that the handlers allow.
    #[inline]
    pub fn poll(&self, budget: u32) -> u32 {
        if self.context != PollContext::Direct || self.polled.swap(true, Ordering::Acquire) {
            return 0;
        }
        let budget = i32::try_from(budget).unwrap_or(i32::MAX);
        // SAFETY: By the type invariant the queue is valid. The budget is not negative.
        let done = unsafe { sys::ib_process_cq_direct(self.raw.as_ptr(), budget) };
        self.polled.store(false, Ordering::Release);
        u32::try_from(done).unwrap_or(0)
    }

    /// Where the queue's completions are handled.
    pub fn context(&self) -> PollContext {
        self.context
    }

    pub(crate) fn as_raw(&self) -> *mut sys::ib_cq {
        self.raw.as_ptr()
    }
}

/// The handler of a quiet queue.
///
/// # Safety
///
/// Called by the core for a queue whose context is the content of [`Cq::wake`].
unsafe extern "C" fn wake_up(_cq: *mut sys::ib_cq, context: *mut c_void) {
    // SAFETY: By the requirement; the box lives until the queue is freed.
    let wake = unsafe { &*context.cast::<Arc<dyn Wake>>() };
    wake.wake();
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is owned. Every queue pair on it holds an `Arc`,
        // so none is left.
        unsafe { sys::ib_free_cq(self.raw.as_ptr()) };
    }
}
