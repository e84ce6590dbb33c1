// SPDX-License-Identifier: GPL-2.0

//! The functions of a queue pair that the core calls, and those that stand in for its driver's.

use crate::{
    qp::{
        completion::{
            Opcode,
            Success,
            WorkCompletion, //
        },
        Qp,
        QpHandler, //
    },
    sys, //
};
use core::{
    ffi::{
        c_int,
        c_void, //
    },
    mem::size_of,
};
use kernel::{
    prelude::*,
    str::CStr, //
};

/// Posts nothing; for a device without the operation, and until the queue pair is created.
///
/// # Safety
///
/// There are no requirements; the type of the function pointer is unsafe.
pub(super) unsafe extern "C" fn no_send(
    _qp: *mut sys::ib_qp,
    _first: *const sys::ib_send_wr,
    _failed: *mut *const sys::ib_send_wr,
) -> c_int {
    ENODEV.to_errno()
}

/// Posts nothing, as [`no_send`].
///
/// # Safety
///
/// There are no requirements; the type of the function pointer is unsafe.
pub(super) unsafe extern "C" fn no_receive(
    _qp: *mut sys::ib_qp,
    _first: *const sys::ib_recv_wr,
    _failed: *mut *const sys::ib_recv_wr,
) -> c_int {
    ENODEV.to_errno()
}

/// Handles a completion (`done`) of a queue pair whose handler is `H`, except those of [`receive`].
///
/// # Safety
///
/// Must only be called by the core, for a completion of a work request of such a queue pair.
pub(super) unsafe extern "C" fn complete<H: QpHandler>(_cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
    // SAFETY: By the function requirements.
    let (qp, tag, completion) = unsafe { identify::<H>(wc) };
    count(qp, completion);
    H::completed(qp, tag, completion);
}

/// Handles a completion (`done`) of an entry below [`QpConfig::receive_tags`].
///
/// # Safety
///
/// As for [`complete`].
pub(super) unsafe extern "C" fn receive<H: QpHandler>(_cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
    // SAFETY: By the function requirements.
    let (qp, tag, completion) = unsafe { identify::<H>(wc) };
    count(qp, completion);
    H::received(qp, tag, completion);
}

/// Counts a signaled send that has succeeded, if it names an address. One that has failed is left
/// to the drain.
#[inline(always)]
fn count<H: QpHandler>(qp: &Qp<H>, completion: &WorkCompletion) {
    if let Some(counts) = qp.send_counts() {
        let is_send = |success: &Success| success.opcode() == Opcode::Send;
        if completion.success().is_some_and(is_send) {
            counts.succeeded();
        }
    }
}

/// Returns the queue pair and the tag of a completion.
///
/// # Safety
///
/// The caller must ensure that `wc` is a completion of a work request of a queue pair whose handler
/// is `H`, and stays unchanged for `'a`, during which the queue pair is not destroyed.
#[inline(always)]
unsafe fn identify<'a, H: QpHandler>(wc: *mut sys::ib_wc) -> (&'a Qp<H>, u32, &'a WorkCompletion) {
    // SAFETY: By the function requirements; the queue pair's context is the `Qp`, which lives until
    // it is drained.
    let (qp, entry) = unsafe {
        let qp = (*(*wc).qp).qp_context.cast::<Qp<H>>();
        (&*qp, (*wc).__bindgen_anon_1.wr_cqe)
    };
    let offset = (entry as usize).wrapping_sub(qp.table.as_ptr() as usize);
    let tag = offset / size_of::<sys::ib_cqe>();
    // SAFETY: By the function requirements.
    let completion = unsafe { WorkCompletion::from_raw(wc) };
    (qp, tag as u32, completion)
}

/// Handles an asynchronous event of a queue pair whose handler is `H`.
///
/// # Safety
///
/// Must only be called by the core, for such a queue pair, with the queue pair's context.
pub(super) unsafe extern "C" fn event<H: QpHandler>(
    event: *mut sys::ib_event,
    context: *mut c_void,
) {
    // SAFETY: The context is the `Qp`, which lives until the queue pair is destroyed.
    let qp = unsafe { &*context.cast::<Qp<H>>() };
    // SAFETY: The core passes a valid event.
    let event = unsafe { (*event).event };
    match event {
        sys::ib_event_type_IB_EVENT_QP_FATAL
        | sys::ib_event_type_IB_EVENT_QP_REQ_ERR
        | sys::ib_event_type_IB_EVENT_QP_ACCESS_ERR => {
            // SAFETY: `ib_event_msg` returns static text for every number.
            let why = unsafe { CStr::from_char_ptr(sys::ib_event_msg(event)) };
            H::broken(qp, why);
        }
        _ => qp.origin.qp_event(event),
    }
}
