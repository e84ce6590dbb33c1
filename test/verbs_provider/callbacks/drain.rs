// SPDX-License-Identifier: GPL-2.0

//! Draining, for devices that do it themselves.

use super::{
    queues::qp_of,
    status, //
};
use crate::{
    request::Queue,
    sys,
    Provider, //
};
use kernel::ffi::{
    c_int,
    c_void, //
};
use verbs_provider_sys as helpers;

pub(crate) fn set<P: Provider>(ops: &mut sys::ib_device_ops) {
    ops.drain_sq = Some(drain_sends::<P>);
    ops.drain_rq = Some(drain_receives::<P>);
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.drain_sq`.
unsafe extern "C" fn drain_sends<P: Provider>(qp: *mut sys::ib_qp) {
    // SAFETY: The queue pair is one of this provider, to which nothing else posts any more.
    unsafe { helpers::verbs_provider_helper_drain(qp.cast(), true, Some(post_send::<P>)) };
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.drain_rq`.
unsafe extern "C" fn drain_receives<P: Provider>(qp: *mut sys::ib_qp) {
    // SAFETY: As in `drain_sends`.
    unsafe { helpers::verbs_provider_helper_drain(qp.cast(), false, Some(post_receive::<P>)) };
}

/// # Safety
///
/// The caller must ensure that `qp` is that of [`drain_sends`].
unsafe extern "C" fn post_send<P: Provider>(qp: *mut c_void, id: u64) -> c_int {
    // SAFETY: By the function requirements.
    unsafe { post_last::<P>(qp, Queue::Send, id) }
}

/// # Safety
///
/// The caller must ensure that `qp` is that of [`drain_receives`].
unsafe extern "C" fn post_receive<P: Provider>(qp: *mut c_void, id: u64) -> c_int {
    // SAFETY: By the function requirements.
    unsafe { post_last::<P>(qp, Queue::Receive, id) }
}

/// # Safety
///
/// The caller must ensure that `qp` is a queue pair of this provider.
unsafe fn post_last<P: Provider>(qp: *mut c_void, queue: Queue, id: u64) -> c_int {
    // SAFETY: By the function requirements.
    status(unsafe {
        qp_of::<P>(qp.cast()).and_then(|qp| {
            P::post_last(qp, queue, id)?;
            P::ring_doorbell(qp, queue);
            Ok(())
        })
    })
}
