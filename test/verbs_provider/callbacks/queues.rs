// SPDX-License-Identifier: GPL-2.0

//! Completion queues and queue pairs.

use super::{
    mem::domain_of,
    status, //
};
use crate::{
    handle::{
        CqHandle,
        QpHandle, //
    },
    registration::provider_of,
    request::{
        QpChange,
        QpInit,
        QpKind, //
    },
    sys,
    Provider, //
};
use core::{
    mem::size_of,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::errno::EOPNOTSUPP;

/// A completion queue: `ib_core`'s part, then the provider's.
#[repr(C)]
struct CqSlot<P: Provider> {
    ib: sys::ib_cq,
    cq: Option<Arc<P::Cq>>,
    handle: Option<Arc<CqHandle>>,
}

/// A queue pair: `ib_core`'s part, then the provider's.
#[repr(C)]
struct QpSlot<P: Provider> {
    ib: sys::ib_qp,
    qp: Option<Arc<P::Qp>>,
    handle: Option<Arc<QpHandle>>,
}

pub(crate) fn set<P: Provider>(ops: &mut sys::ib_device_ops) {
    ops.size_ib_cq = size_of::<CqSlot<P>>();
    ops.create_cq = Some(create_cq::<P>);
    ops.destroy_cq = Some(destroy_cq::<P>);
    ops.poll_cq = Some(poll_cq::<P>);
    ops.req_notify_cq = Some(req_notify_cq::<P>);
    ops.size_ib_qp = size_of::<QpSlot<P>>();
    ops.create_qp = Some(create_qp::<P>);
    ops.modify_qp = Some(modify_qp::<P>);
    ops.query_qp = Some(query_qp::<P>);
    ops.destroy_qp = Some(destroy_qp::<P>);
}

/// Returns the provider's part of a completion queue.
///
/// # Safety
///
/// The caller must ensure that `cq` is a queue of a device of `P`, which outlives the result.
unsafe fn cq_of<'a, P: Provider>(cq: *const sys::ib_cq) -> Result<&'a Arc<P::Cq>> {
    // SAFETY: By the function requirements; the place does not change while the queue exists.
    let place = unsafe { &(*cq.cast::<CqSlot<P>>()).cq };
    place.as_ref().ok_or(EINVAL)
}

/// Returns the provider's part of a queue pair.
///
/// # Safety
///
/// The caller must ensure that `qp` is a queue pair of a device of `P`, which outlives the result.
pub(super) unsafe fn qp_of<'a, P: Provider>(qp: *const sys::ib_qp) -> Result<&'a Arc<P::Qp>> {
    // SAFETY: By the function requirements; the place does not change while the queue pair exists.
    let place = unsafe { &(*qp.cast::<QpSlot<P>>()).qp };
    place.as_ref().ok_or(EINVAL)
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.create_cq`.
unsafe extern "C" fn create_cq<P: Provider>(
    cq: *mut sys::ib_cq,
    attr: *const sys::ib_cq_init_attr,
    _attrs: *mut sys::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: `ib_core` has allocated a slot, and passes valid attributes. The handle is closed in
    // `destroy_cq`.
    status(unsafe {
        let slot = cq.cast::<CqSlot<P>>();
        let create = || {
            let handle = CqHandle::new(NonNull::new(cq).ok_or(EINVAL)?)?;
            let provider = provider_of::<P>((*cq).device)?;
            let made = provider.create_cq(handle.clone(), (*attr).cqe, (*attr).comp_vector)?;
            (*cq).cqe = (*attr).cqe as c_int;
            (&raw mut (*slot).cq).write(Some(made));
            (&raw mut (*slot).handle).write(Some(handle));
            Ok(())
        };
        create()
    })
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.destroy_cq`.
unsafe extern "C" fn destroy_cq<P: Provider>(
    cq: *mut sys::ib_cq,
    _udata: *mut sys::ib_udata,
) -> c_int {
    let slot = cq.cast::<CqSlot<P>>();
    // SAFETY: `create_cq` wrote both places; no queue pair uses the queue any more.
    unsafe {
        if let Some(handle) = ptr::replace(&raw mut (*slot).handle, None) {
            handle.close();
        }
        if let Some(cq) = ptr::replace(&raw mut (*slot).cq, None) {
            P::close_cq(&cq);
        }
    }
    0
}

/// # Safety
///
/// The caller must be a consumer, as `ib_device_ops.poll_cq`.
unsafe extern "C" fn poll_cq<P: Provider>(
    cq: *mut sys::ib_cq,
    count: c_int,
    wc: *mut sys::ib_wc,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: The consumer passes a queue of this provider, and room for `count` completions.
    let (cq, room) = unsafe { (cq_of::<P>(cq), slice::from_raw_parts_mut(wc, count)) };
    let Ok(cq) = cq else {
        return 0;
    };
    let mut polled = 0;
    for to in room {
        let Some((qp, completion)) = P::poll(cq) else {
            break;
        };
        completion.write(P::handle(&qp).as_raw(), to);
        polled += 1;
    }
    polled
}

/// # Safety
///
/// The caller must be a consumer, as `ib_device_ops.req_notify_cq`.
unsafe extern "C" fn req_notify_cq<P: Provider>(
    cq: *mut sys::ib_cq,
    flags: sys::ib_cq_notify_flags,
) -> c_int {
    let solicited = flags & sys::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
        == sys::ib_cq_notify_flags_IB_CQ_SOLICITED;
    // SAFETY: The consumer passes a queue of this provider.
    match unsafe { cq_of::<P>(cq) } {
        Ok(cq) => c_int::from(
            P::arm(cq, solicited)
                && flags & sys::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0,
        ),
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.create_qp`.
unsafe extern "C" fn create_qp<P: Provider>(
    qp: *mut sys::ib_qp,
    init: *mut sys::ib_qp_init_attr,
    _udata: *mut sys::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` has allocated a slot with its domain, and passes valid attributes with
    // completion queues of this provider.
    status(unsafe { create_qp_of::<P>(qp, &mut *init) })
}

/// # Safety
///
/// The caller must ensure that `qp` and `init` are those of `ib_device_ops.create_qp`.
unsafe fn create_qp_of<P: Provider>(
    qp: *mut sys::ib_qp,
    init: &mut sys::ib_qp_init_attr,
) -> Result {
    let kind = match init.qp_type {
        sys::ib_qp_type_IB_QPT_GSI => QpKind::General,
        sys::ib_qp_type_IB_QPT_UD => QpKind::Datagram,
        sys::ib_qp_type_IB_QPT_RC => QpKind::Connected,
        _ => return Err(EOPNOTSUPP),
    };
    if !init.srq.is_null() || init.create_flags != 0 || init.cap.max_inline_data != 0 {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: By the function requirements, `ib_core` creates this queue pair now. It frees it
    // after this call has failed, or `destroy_qp` has returned, which close the handle.
    let handle = unsafe { QpHandle::new(NonNull::new(qp).ok_or(EINVAL)?)? };
    // SAFETY: By the function requirements, all of them are of this provider.
    let (provider, domain, send_cq, recv_cq) = unsafe {
        (
            provider_of::<P>((*qp).device)?,
            domain_of((*qp).pd),
            cq_of::<P>(init.send_cq)?,
            cq_of::<P>(init.recv_cq)?,
        )
    };
    let made = provider.create_qp(
        handle.clone(),
        QpInit {
            kind,
            domain,
            send_cq,
            recv_cq,
            send_wr: init.cap.max_send_wr,
            recv_wr: init.cap.max_recv_wr,
            send_sge: init.cap.max_send_sge,
            recv_sge: init.cap.max_recv_sge,
            signal_all: init.sq_sig_type == sys::ib_sig_type_IB_SIGNAL_ALL_WR,
        },
    );
    let made = made.inspect_err(|_| handle.close())?;
    let slot = qp.cast::<QpSlot<P>>();
    // SAFETY: By the function requirements, the slot is allocated and not used yet.
    unsafe {
        (*qp).qp_num = P::number(&made);
        (&raw mut (*slot).qp).write(Some(made));
        (&raw mut (*slot).handle).write(Some(handle));
    }
    Ok(())
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.modify_qp`.
unsafe extern "C" fn modify_qp<P: Provider>(
    qp: *mut sys::ib_qp,
    attr: *mut sys::ib_qp_attr,
    mask: c_int,
    _udata: *mut sys::ib_udata,
) -> c_int {
    // CAST: The flags are unsigned in C, the argument is an `int`.
    let mask = mask as u32;
    let has = |flag: u32| mask & flag != 0;
    // SAFETY: `ib_core` passes a queue pair of this provider, and attributes of which those in the
    // mask are set. Each representation of an address is valid.
    status(unsafe {
        qp_of::<P>(qp).and_then(|qp| {
            let change = QpChange {
                state: has(sys::ib_qp_attr_mask_IB_QP_STATE).then(|| (*attr).qp_state),
                dest_qp_num: has(sys::ib_qp_attr_mask_IB_QP_DEST_QPN).then(|| (*attr).dest_qp_num),
                dest_gid: has(sys::ib_qp_attr_mask_IB_QP_AV).then(|| (*attr).ah_attr.grh.dgid.raw),
                pkey_index: has(sys::ib_qp_attr_mask_IB_QP_PKEY_INDEX).then(|| (*attr).pkey_index),
                qkey: has(sys::ib_qp_attr_mask_IB_QP_QKEY).then(|| (*attr).qkey),
            };
            P::modify(qp, &change)
        })
    })
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_qp`.
unsafe extern "C" fn query_qp<P: Provider>(
    qp: *mut sys::ib_qp,
    attr: *mut sys::ib_qp_attr,
    _mask: c_int,
    _init: *mut sys::ib_qp_init_attr,
) -> c_int {
    // SAFETY: `ib_core` passes a queue pair of this provider, and attributes of its own.
    status(unsafe {
        qp_of::<P>(qp).map(|qp| {
            (*attr).qp_state = P::state(qp);
            (*attr).cur_qp_state = (*attr).qp_state;
        })
    })
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.destroy_qp`.
unsafe extern "C" fn destroy_qp<P: Provider>(
    qp: *mut sys::ib_qp,
    _udata: *mut sys::ib_udata,
) -> c_int {
    let slot = qp.cast::<QpSlot<P>>();
    // SAFETY: `create_qp` wrote both places; the consumer does not use the queue pair any more.
    unsafe {
        if let Some(qp) = ptr::replace(&raw mut (*slot).qp, None) {
            P::close_qp(&qp);
        }
        if let Some(handle) = ptr::replace(&raw mut (*slot).handle, None) {
            handle.close();
        }
    }
    0
}
