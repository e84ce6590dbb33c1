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
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};

/// The context in which completions are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollContext {
    /// Softirq context: handlers must not sleep.
    Softirq,
    /// Process context, on a work queue bound to the CPU of the interrupt.
    Workqueue,
    /// The context of the caller of [`Cq::poll`], and no other; there are no interrupts.
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

/// The handler of the notifications of a queue.
pub trait Notify: Send + Sync + 'static {
    /// Handles a notification that was [requested](Cq::request_notify): the queue has completions
    /// to [poll](Cq::poll). Any context, hard interrupts included.
    fn notify(&self) {}

    /// Handles a fatal error of the queue (`IB_EVENT_CQ_ERR`), which has lost completions: its
    /// queue pairs are of no use any more. Any context.
    fn broken(&self);
}

/// A completion queue. Dropping the last reference sleeps and must not happen in a completion
/// handler of the queue. Queue pairs hold references.
///
/// # Invariants
///
/// - `raw` is a completion queue of `_device`, allocated with `context` and owned by `self`.
/// - Its context is `shared`. If `armed` is set, its handler is [`wake_up`].
/// - `room` is the number of entries that no queue pair has reserved.
pub struct Cq {
    raw: NonNull<sys::ib_cq>,
    context: PollContext,
    shared: KBox<Shared>,
    armed: bool,
    room: AtomicU32,
    /// A thread is in [`Self::poll`].
    polled: AtomicBool,
    _device: Device,
}

/// The state that the event handlers of a queue use.
struct Shared {
    notify: Option<Arc<dyn Notify>>,
    broken: AtomicBool,
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
    /// interrupt, modulo the number of vectors. `notify` is called after an error of the queue;
    /// without it the error is logged.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `entries` is 0 or more than the device has in a queue, and those of
    /// `ib_alloc_cq()`.
    pub fn new(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
        notify: Option<Arc<dyn Notify>>,
    ) -> Result<Arc<Self>> {
        let queue = Self::alloc(device, entries, vector, context, notify)?;
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    /// Allocates a queue with [`PollContext::Direct`], whose [`Notify`] can be
    /// [requested](Self::request_notify) where polling alone is not enough; else as
    /// [`new`](Self::new), with its errors. Sleeps.
    pub fn polled_with_notify(
        device: &Device,
        entries: u32,
        vector: u32,
        notify: Arc<dyn Notify>,
    ) -> Result<Arc<Self>> {
        let direct = PollContext::Direct;
        let mut queue = Self::alloc(device, entries, vector, direct, Some(notify))?;
        // INVARIANT: The handler is set below.
        queue.armed = true;
        // SAFETY: The queue is valid and not armed yet.
        unsafe { (*queue.raw.as_ptr()).comp_handler = Some(wake_up) };
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    fn alloc(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
        notify: Option<Arc<dyn Notify>>,
    ) -> Result<Self> {
        if entries == 0 || entries > device.max_cqe() {
            return Err(EINVAL);
        }
        let count = i32::try_from(entries).map_err(|_| EINVAL)?;
        let vector = vector.checked_rem(device.comp_vectors()).unwrap_or(0);
        let shared = Shared {
            notify,
            broken: AtomicBool::new(false),
        };
        let shared = KBox::new(shared, GFP_KERNEL)?;
        // SAFETY: The device is valid and has the vector; the name is a static string. The context
        // is in a box that is freed after the queue.
        let raw = from_err_ptr(unsafe {
            sys::__ib_alloc_cq(
                device.as_raw(),
                ptr::from_ref(&*shared).cast_mut().cast(),
                count,
                vector.try_into().unwrap_or(0),
                context.as_raw(),
                crate::CALLER.as_char_ptr(),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The queue is valid; it has no queue pair yet, and so no events.
        unsafe { (*raw.as_ptr()).event_handler = Some(event) };
        // INVARIANT: The queue was just allocated and has no other owner. If the allocation of the
        // `Arc` fails, the drop of the `Cq` frees it.
        Ok(Self {
            raw,
            context,
            shared,
            armed: false,
            room: AtomicU32::new(entries),
            polled: AtomicBool::new(false),
            _device: device.clone(),
        })
    }

    /// Reserves `entries` for a queue pair; `EINVAL` if the queue is too short for them.
    pub(crate) fn reserve(&self, entries: u32) -> Result {
        let taken = self
            .room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
                room.checked_sub(entries)
            });
        taken.map(drop).map_err(|_| EINVAL)
    }

    /// Gives `entries` back that were reserved.
    pub(crate) fn release(&self, entries: u32) {
        self.room.fetch_add(entries, Ordering::Relaxed);
    }

    /// Returns whether the queue has lost completions and cannot be used any more.
    pub fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Relaxed)
    }

    /// Requests one notification of its [`Notify`] for the next completion (`ib_req_notify_cq()`).
    /// Returns whether the queue already has completions, which the caller polls first. Does
    /// nothing for a queue that was not made by [`Self::polled_with_notify`]. Any context.
    pub fn request_notify(&self) -> bool {
        if !self.armed {
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
        let claim = Polling(self);
        // SAFETY: The context was checked, and the queue is claimed.
        unsafe { claim.process_direct(budget) }
    }

    /// Excludes other contexts from polling; [`None`] if one still polls after `wait_ms`. Sleeps
    /// unless that is 0.
    pub(crate) fn claim(&self, wait_ms: i64) -> Option<Polling<'_>> {
        let begun = Instant::<Monotonic>::now();
        while self.polled.swap(true, Ordering::Acquire) {
            if begun.elapsed().as_millis() >= wait_ms {
                return None;
            }
            fsleep(Delta::from_micros(20));
        }
        Some(Polling(self))
    }

    /// Returns the context in which the queue's completions are handled.
    pub(crate) fn context(&self) -> PollContext {
        self.context
    }

    pub(crate) fn as_raw(&self) -> *mut sys::ib_cq {
        self.raw.as_ptr()
    }
}

/// The right to poll a queue, which one context has at a time.
///
/// # Invariants
///
/// The holder has set [`Cq::polled`].
pub(crate) struct Polling<'a>(&'a Cq);

impl Polling<'_> {
    /// Handles all completions, if the queue is a polled one.
    pub(crate) fn process(&self) {
        if self.0.context == PollContext::Direct {
            // SAFETY: The context was checked.
            unsafe { self.process_direct(u32::MAX) };
        }
    }

    /// Handles up to `budget` completions, and returns their number.
    ///
    /// # Safety
    ///
    /// The queue must be a [`PollContext::Direct`] one.
    #[inline(always)]
    unsafe fn process_direct(&self, budget: u32) -> u32 {
        let budget = i32::try_from(budget).unwrap_or(i32::MAX);
        // SAFETY: By the type invariants, the queue is valid and no other context polls it. The
        // budget is not negative.
        let done = unsafe { sys::ib_process_cq_direct(self.0.raw.as_ptr(), budget) };
        u32::try_from(done).unwrap_or(0)
    }
}

impl Drop for Polling<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.polled.store(false, Ordering::Release);
    }
}

/// Handles the notification of a queue made by [`Cq::polled_with_notify`].
///
/// # Safety
///
/// Must only be called by the core, for a queue whose context is the content of [`Cq::shared`].
unsafe extern "C" fn wake_up(_cq: *mut sys::ib_cq, context: *mut c_void) {
    // SAFETY: By the function requirements; the box lives until the queue is freed.
    let shared = unsafe { &*context.cast::<Shared>() };
    if let Some(notify) = &shared.notify {
        notify.notify();
    }
}

/// Handles an asynchronous event of a queue: `IB_EVENT_CQ_ERR` is the only one.
///
/// # Safety
///
/// As for [`wake_up`].
unsafe extern "C" fn event(_event: *mut sys::ib_event, context: *mut c_void) {
    // SAFETY: By the function requirements; the box lives until the queue is freed.
    let shared = unsafe { &*context.cast::<Shared>() };
    shared.broken.store(true, Ordering::Relaxed);
    match &shared.notify {
        Some(notify) => notify.broken(),
        None => pr_err!("a completion queue has lost completions\n"),
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `self` owns the queue. Every queue pair on it holds an
        // `Arc`, so none is left.
        unsafe { sys::ib_free_cq(self.raw.as_ptr()) };
    }
}
