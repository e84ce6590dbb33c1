// SPDX-License-Identifier: GPL-2.0

//! The device, its port and its addresses.

use super::status;
use crate::{
    registration::{
        provider_of,
        write_attributes, //
    },
    sys,
    Provider, //
};
use kernel::{
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*, //
};

/// The partition key of the default partition.
const DEFAULT_PKEY: u16 = 0xffff;
const GIDS: c_int = 64;
const MAX_MESSAGE_BYTES: u32 = 1 << 30;
/// The state of a link that is up (`IB_PORT_PHYS_STATE_LINK_UP`).
const LINK_UP: u8 = 5;

pub(crate) fn set<P: Provider>(ops: &mut sys::ib_device_ops) {
    ops.query_device = Some(query_device::<P>);
    ops.query_port = Some(query_port);
    ops.get_port_immutable = Some(get_port_immutable);
    ops.get_link_layer = Some(get_link_layer);
    ops.query_pkey = Some(query_pkey);
    ops.add_gid = Some(add_gid::<P>);
    ops.del_gid = Some(del_gid::<P>);
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_device`.
unsafe extern "C" fn query_device<P: Provider>(
    device: *mut sys::ib_device,
    attr: *mut sys::ib_device_attr,
    _udata: *mut sys::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this provider, and attributes that it has zeroed.
    status(unsafe {
        provider_of::<P>(device).map(|provider| write_attributes(&provider.limits(), &mut *attr))
    })
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_port`.
unsafe extern "C" fn query_port(
    _device: *mut sys::ib_device,
    _port: u32,
    attr: *mut sys::ib_port_attr,
) -> c_int {
    // SAFETY: `ib_core` passes attributes that it has zeroed.
    let attr = unsafe { &mut *attr };
    attr.state = sys::ib_port_state_IB_PORT_ACTIVE;
    attr.phys_state = LINK_UP;
    attr.max_mtu = sys::ib_mtu_IB_MTU_4096;
    attr.active_mtu = sys::ib_mtu_IB_MTU_4096;
    attr.gid_tbl_len = GIDS;
    attr.max_msg_sz = MAX_MESSAGE_BYTES;
    attr.pkey_tbl_len = 1;
    attr.active_width = 1;
    attr.active_speed = 1;
    attr.set_ip_gids(1);
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.get_port_immutable`.
unsafe extern "C" fn get_port_immutable(
    _device: *mut sys::ib_device,
    _port: u32,
    immutable: *mut sys::ib_port_immutable,
) -> c_int {
    // SAFETY: `ib_core` passes memory of its own.
    let immutable = unsafe { &mut *immutable };
    immutable.pkey_tbl_len = 1;
    immutable.gid_tbl_len = GIDS;
    immutable.core_cap_flags = sys::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
    immutable.max_mad_size = 256;
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.get_link_layer`.
unsafe extern "C" fn get_link_layer(
    _device: *mut sys::ib_device,
    _port: u32,
) -> sys::rdma_link_layer {
    sys::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_pkey`.
unsafe extern "C" fn query_pkey(
    _device: *mut sys::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    if index != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: `ib_core` passes memory of its own.
    unsafe { *pkey = DEFAULT_PKEY };
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.add_gid`.
unsafe extern "C" fn add_gid<P: Provider>(
    attr: *const sys::ib_gid_attr,
    _context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `ib_core` passes a valid address of a device of this provider. Each representation
    // of an address is valid.
    status(unsafe {
        provider_of::<P>((*attr).device)
            .and_then(|provider| provider.add_gid(u32::from((*attr).index), (*attr).gid.raw))
    })
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.del_gid`.
unsafe extern "C" fn del_gid<P: Provider>(
    attr: *const sys::ib_gid_attr,
    _context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `ib_core` passes a valid address of a device of this provider.
    status(unsafe {
        provider_of::<P>((*attr).device)
            .map(|provider| provider.remove_gid(u32::from((*attr).index)))
    })
}
