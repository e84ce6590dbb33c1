// SPDX-License-Identifier: GPL-2.0

//! Posting work requests.

use super::{
    mem::{
        datagram_of,
        mr_of, //
    },
    queues::qp_of,
    status, //
};
use crate::{
    memory::{
        AddressSpace,
        Extent, //
    },
    request::{
        ranges,
        Operation,
        Queue,
        SendRequest, //
    },
    sys,
    Provider, //
};
use core::{
    ptr,
    slice, //
};
use kernel::{
    ffi::c_int,
    prelude::*, //
};
use kernel_ext::errno::EOPNOTSUPP;

pub(crate) fn set<P: Provider>(ops: &mut sys::ib_device_ops) {
    ops.post_send = Some(post_send::<P>);
    ops.post_recv = Some(post_recv::<P>);
}

/// Returns the segments of a work request.
///
/// # Safety
///
/// The caller must ensure that `list` has `count` entries, which outlive the result.
unsafe fn segments<'a>(list: *const sys::ib_sge, count: c_int) -> &'a [sys::ib_sge] {
    match usize::try_from(count) {
        // SAFETY: By the function requirements.
        Ok(count) if count > 0 && !list.is_null() => unsafe { slice::from_raw_parts(list, count) },
        _ => &[],
    }
}

/// # Safety
///
/// The caller must be a consumer, as `ib_device_ops.post_send`.
unsafe extern "C" fn post_send<P: Provider>(
    qp: *mut sys::ib_qp,
    first: *const sys::ib_send_wr,
    bad: *mut *const sys::ib_send_wr,
) -> c_int {
    // SAFETY: The consumer passes a queue pair of this provider.
    let (space, is_connected) = unsafe {
        (
            AddressSpace::of((*qp).device),
            (*qp).qp_type == sys::ib_qp_type_IB_QPT_RC,
        )
    };
    // SAFETY: As above.
    let qp = match unsafe { qp_of::<P>(qp) } {
        Ok(qp) => qp,
        Err(error) => return error.to_errno(),
    };
    let mut result = Ok(());
    let mut wr = first;
    // SAFETY: The consumer passes a list of valid work requests that ends in null.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: As above; those of a queue pair for datagrams are `ib_ud_wr`.
        result = unsafe { send_request::<P>(request, space, is_connected) }
            .and_then(|request| P::post_send(qp, &request));
        if result.is_err() {
            break;
        }
        wr = request.next;
    }
    P::ring_doorbell(qp, Queue::Send);
    if result.is_err() && !bad.is_null() {
        // SAFETY: The consumer passes a valid place or, as it may in the kernel, null.
        unsafe { *bad = wr };
    }
    status(result)
}

/// # Safety
///
/// The caller must ensure that `wr` is a valid work request of a queue pair of `P`, of the type
/// that its operation names, and `space` that of its device.
unsafe fn send_request<'a, P: Provider>(
    wr: &'a sys::ib_send_wr,
    space: AddressSpace<'a>,
    is_connected: bool,
) -> Result<SendRequest<'a, P>> {
    let raw = ptr::from_ref(wr);
    // CAST: The flags are an `int` in C.
    let has = |flag: sys::ib_send_flags| wr.send_flags & flag as c_int != 0;
    if has(sys::ib_send_flags_IB_SEND_INLINE) {
        return Err(EINVAL);
    }
    // SAFETY: By the function requirements, the work request is one of the larger types, if its
    // operation says so, and its union is initialised.
    let (operation, segments) = unsafe {
        (
            if is_connected {
                operation::<P>(raw)?
            } else {
                datagram::<P>(raw)?
            },
            segments(wr.sg_list, wr.num_sge),
        )
    };
    Ok(SendRequest {
        // SAFETY: Both fields of the union are 64 bits of any value.
        id: unsafe { wr.__bindgen_anon_1.wr_id },
        signaled: has(sys::ib_send_flags_IB_SEND_SIGNALED),
        solicited: has(sys::ib_send_flags_IB_SEND_SOLICITED),
        operation,
        space,
        segments,
    })
}

/// # Safety
///
/// As [`send_request`], for a queue pair for datagrams.
unsafe fn datagram<'a, P: Provider>(wr: *const sys::ib_send_wr) -> Result<Operation<'a, P>> {
    // SAFETY: By the function requirements; the part of the union is 32 bits of any value.
    unsafe {
        let ud = wr.cast::<sys::ib_ud_wr>();
        let imm = match (*wr).opcode {
            sys::ib_wr_opcode_IB_WR_SEND => None,
            sys::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Some((*wr).ex.imm_data),
            _ => return Err(EOPNOTSUPP),
        };
        let to = datagram_of((*ud).ah, (*ud).remote_qpn, (*ud).remote_qkey)?;
        Ok(Operation::Send {
            imm,
            invalidate: None,
            datagram: Some(to),
        })
    }
}

/// # Safety
///
/// As [`send_request`], for a connected queue pair.
unsafe fn operation<'a, P: Provider>(wr: *const sys::ib_send_wr) -> Result<Operation<'a, P>> {
    // SAFETY: By the function requirements; the parts of the unions are 32 bits of any value.
    unsafe {
        let imm = (*wr).ex.imm_data;
        let key = (*wr).ex.invalidate_rkey;
        let rdma = wr.cast::<sys::ib_rdma_wr>();
        let send = |imm, invalidate| -> Result<Operation<'a, P>> {
            Ok(Operation::Send {
                imm,
                invalidate,
                datagram: None,
            })
        };
        match (*wr).opcode {
            sys::ib_wr_opcode_IB_WR_SEND => send(None, None),
            sys::ib_wr_opcode_IB_WR_SEND_WITH_IMM => send(Some(imm), None),
            sys::ib_wr_opcode_IB_WR_SEND_WITH_INV => send(None, Some(key)),
            opcode @ (sys::ib_wr_opcode_IB_WR_RDMA_WRITE
            | sys::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM) => Ok(Operation::Write {
                addr: (*rdma).remote_addr,
                key: (*rdma).rkey,
                imm: (opcode == sys::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM).then_some(imm),
            }),
            sys::ib_wr_opcode_IB_WR_RDMA_READ => Ok(Operation::Read {
                addr: (*rdma).remote_addr,
                key: (*rdma).rkey,
            }),
            sys::ib_wr_opcode_IB_WR_LOCAL_INV => Ok(Operation::Invalidate { key }),
            sys::ib_wr_opcode_IB_WR_REG_MR => {
                let reg = wr.cast::<sys::ib_reg_wr>();
                let mr = (*reg).mr;
                Ok(Operation::Register {
                    mr: mr_of::<P>(mr),
                    key: (*reg).key,
                    // CAST: The flags are an `int` in C.
                    access: (*reg).access as u32,
                    extent: Extent {
                        iova: (*mr).iova,
                        len: (*mr).length,
                        page_bytes: (*mr).page_size,
                    },
                })
            }
            _ => Err(EOPNOTSUPP),
        }
    }
}

/// # Safety
///
/// The caller must be a consumer, as `ib_device_ops.post_recv`.
unsafe extern "C" fn post_recv<P: Provider>(
    qp: *mut sys::ib_qp,
    first: *const sys::ib_recv_wr,
    bad: *mut *const sys::ib_recv_wr,
) -> c_int {
    // SAFETY: The consumer passes a queue pair of this provider.
    let space = unsafe { AddressSpace::of((*qp).device) };
    // SAFETY: As above.
    let qp = match unsafe { qp_of::<P>(qp) } {
        Ok(qp) => qp,
        Err(error) => return error.to_errno(),
    };
    let mut result = Ok(());
    let mut wr = first;
    // SAFETY: The consumer passes a list of valid work requests that ends in null.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: The work request is valid; both fields of the union are 64 bits of any value.
        let (id, segments) = unsafe {
            (
                request.__bindgen_anon_1.wr_id,
                segments(request.sg_list, request.num_sge),
            )
        };
        // SAFETY: The consumer posts the segments to a queue pair of this device.
        result = P::post_recv(qp, id, unsafe { ranges(space, segments) });
        if result.is_err() {
            break;
        }
        wr = request.next;
    }
    P::ring_doorbell(qp, Queue::Receive);
    if result.is_err() && !bad.is_null() {
        // SAFETY: The consumer passes a valid place or, as it may in the kernel, null.
        unsafe { *bad = wr };
    }
    status(result)
}
