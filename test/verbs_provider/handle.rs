// SPDX-License-Identifier: GPL-2.0

//! The C objects of consumers, for the provider to call.

use crate::{
    registration::PORT,
    request::DeviceEvent,
    sys, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::{
    atomic::{AtomicPtr, Ordering},
    new_irq_lock,
    IrqLock, //
};

/// A completion queue of a consumer.
///
/// # Invariants
///
/// `raw`, if there is one, is a completion queue that is not destroyed while the lock is held.
#[pin_data]
pub struct CqHandle {
    #[pin]
    raw: IrqLock<Option<RawCq>>,
}

struct RawCq(NonNull<sys::ib_cq>);

// SAFETY: `comp_handler` may be called by any thread.
unsafe impl Send for RawCq {}

impl CqHandle {
    /// # Safety
    ///
    /// The caller must ensure that `raw` lives until [`close`](Self::close) has returned.
    pub(crate) unsafe fn new(raw: NonNull<sys::ib_cq>) -> Result<Arc<Self>> {
        // INVARIANT: By the function requirements, the queue lives until `close`, which takes the
        // lock.
        Arc::pin_init(
            pin_init!(Self { raw <- new_irq_lock!(Some(RawCq(raw))) }),
            GFP_KERNEL,
        )
    }

    /// Ends the notifications: when this returns, none runs.
    pub(crate) fn close(&self) {
        *self.raw.lock() = None;
    }

    /// Tells the consumer that the queue has lost completions (`IB_EVENT_CQ_ERR`). Any context.
    pub fn report_overrun(&self) {
        let raw = self.raw.lock();
        let Some(RawCq(cq)) = raw.as_ref() else {
            return;
        };
        // SAFETY: By the type invariants, the queue is alive while the lock is held, and so is its
        // device. `ib_core` and the consumer have set the handler before the first queue pair uses
        // the queue. All zeroes is a valid event.
        unsafe {
            let cq = cq.as_ptr();
            let mut event: sys::ib_event = core::mem::zeroed();
            event.device = (*cq).device;
            event.element.cq = cq;
            event.event = sys::ib_event_type_IB_EVENT_CQ_ERR;
            if let Some(handler) = (*cq).event_handler {
                handler(&raw mut event, (*cq).cq_context);
            }
        }
    }

    /// Tells the consumer that there are completions. Any context.
    pub fn notify(&self) {
        if let Some(cq) = self.raw.lock().as_ref() {
            cq.notify();
        }
    }

    /// Does the same if the current CPU is the one of this number; returns whether it is.
    pub fn notify_on(&self, cpu: u32) -> bool {
        // Interrupts are off, so the thread stays on its CPU.
        let raw = self.raw.lock();
        if CpuId::current().as_u32() != cpu {
            return false;
        }
        if let Some(cq) = raw.as_ref() {
            cq.notify();
        }
        true
    }
}

impl RawCq {
    /// Tells the consumer that there are completions. The caller has the lock of the handle.
    fn notify(&self) {
        let Self(cq) = self;
        // SAFETY: By the type invariants of `CqHandle`, the queue is alive while the lock is held,
        // without which no one has a reference. `ib_core` has set the handler before the first
        // queue pair uses the queue.
        unsafe {
            let cq = cq.as_ptr();
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }
}

/// A queue pair of a consumer.
///
/// # Invariants
///
/// `raw`, if it is not null, is a queue pair that is not destroyed while `events` is held.
#[pin_data]
pub struct QpHandle {
    raw: AtomicPtr<sys::ib_qp>,
    /// Held while the consumer is told of an event.
    #[pin]
    events: IrqLock<()>,
}

impl QpHandle {
    /// # Safety
    ///
    /// The caller must ensure that `raw` lives until [`close`](Self::close) has returned.
    pub(crate) unsafe fn new(raw: NonNull<sys::ib_qp>) -> Result<Arc<Self>> {
        // INVARIANT: By the function requirements, the queue pair lives until `close`, which takes
        // the lock.
        Arc::pin_init(
            pin_init!(Self {
                raw: AtomicPtr::new(raw.as_ptr()),
                events <- new_irq_lock!(()),
            }),
            GFP_KERNEL,
        )
    }

    /// Forgets the queue pair, which is about to be destroyed: when this returns, no event is told.
    pub(crate) fn close(&self) {
        let _events = self.events.lock();
        self.raw.store(null_mut(), Ordering::Relaxed);
    }

    /// The address for the consumer's completions; it is not dereferenced here.
    pub(crate) fn as_raw(&self) -> *mut sys::ib_qp {
        self.raw.load(Ordering::Relaxed)
    }

    /// Tells all consumers of the device of an event. They are told later, in process context. Any
    /// context.
    pub fn report_of_device(&self, kind: DeviceEvent) {
        let _events = self.events.lock();
        let qp = self.raw.load(Ordering::Relaxed);
        if qp.is_null() {
            return;
        }
        // SAFETY: By the type invariants, the queue pair is alive while the lock is held, and so is
        // its device, which is registered. The function copies the event; all zeroes is a valid
        // one.
        unsafe {
            let mut event: sys::ib_event = core::mem::zeroed();
            event.device = (*qp).device;
            event.element.port_num = PORT;
            event.event = kind.to_raw();
            sys::ib_dispatch_event(&raw const event);
        }
    }

    /// Tells the consumer that the device cannot go on with the queue pair (`IB_EVENT_QP_FATAL`).
    /// Any context.
    pub fn report_fatal(&self) {
        let _events = self.events.lock();
        let qp = self.raw.load(Ordering::Relaxed);
        if qp.is_null() {
            return;
        }
        // SAFETY: By the type invariants, the queue pair is alive while the lock is held, and so is
        // its device. All zeroes is a valid event.
        unsafe {
            let mut event: sys::ib_event = core::mem::zeroed();
            event.device = (*qp).device;
            event.element.qp = qp;
            event.event = sys::ib_event_type_IB_EVENT_QP_FATAL;
            if let Some(handler) = (*qp).event_handler {
                handler(&raw mut event, (*qp).qp_context);
            }
        }
    }
}
