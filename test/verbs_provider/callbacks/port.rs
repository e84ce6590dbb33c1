// SPDX-License-Identifier: GPL-2.0

//! The device, its port and its addresses.

use super::status;
use crate::{
    registration::{
        provider_of,
        write_attributes, //
    },
    request::{
        Subnet,
        PKEYS, //
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
/// A port of InfiniBand without a queue pair 0: its subnet manager is not one that asks.
const INFINIBAND: u32 = sys::RDMA_CORE_CAP_PROT_IB
    | sys::RDMA_CORE_CAP_IB_MAD
    | sys::RDMA_CORE_CAP_IB_CM
    | sys::RDMA_CORE_CAP_IB_SA
    | sys::RDMA_CORE_CAP_AF_IB;

pub(crate) fn set<P: Provider>(ops: &mut sys::ib_device_ops) {
    ops.query_device = Some(query_device::<P>);
    ops.query_port = Some(query_port::<P>);
    ops.modify_port = Some(modify_port);
    ops.get_port_immutable = Some(get_port_immutable::<P>);
    ops.get_link_layer = Some(get_link_layer::<P>);
    ops.query_pkey = Some(query_pkey::<P>);
    ops.query_gid = Some(query_gid::<P>);
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

/// Returns what its subnet has given to the port of a device of `P`, if it is one of InfiniBand.
///
/// # Safety
///
/// The caller must ensure that `device` is a device of `P`.
unsafe fn subnet_of<P: Provider>(device: *const sys::ib_device) -> Option<Subnet> {
    // SAFETY: By the function requirements; it is used during this call only.
    unsafe { provider_of::<P>(device) }.ok()?.subnet()
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_port`.
unsafe extern "C" fn query_port<P: Provider>(
    device: *mut sys::ib_device,
    _port: u32,
    attr: *mut sys::ib_port_attr,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this provider, and attributes that it has zeroed.
    let (subnet, attr) = unsafe { (subnet_of::<P>(device), &mut *attr) };
    attr.state = sys::ib_port_state_IB_PORT_ACTIVE;
    attr.phys_state = LINK_UP;
    attr.max_mtu = sys::ib_mtu_IB_MTU_4096;
    attr.active_mtu = sys::ib_mtu_IB_MTU_4096;
    attr.max_msg_sz = MAX_MESSAGE_BYTES;
    attr.active_width = 1;
    attr.active_speed = 1;
    (attr.pkey_tbl_len, attr.gid_tbl_len) = table_lengths(subnet.as_ref());
    match subnet {
        Some(subnet) => attr.lid = subnet.lid.into(),
        None => attr.set_ip_gids(1),
    }
    0
}

/// Returns the lengths of the tables of partition keys and of addresses.
const fn table_lengths(subnet: Option<&Subnet>) -> (u16, c_int) {
    match subnet {
        // CAST: A small constant.
        Some(_) => (PKEYS as u16, 1),
        None => (1, GIDS),
    }
}

/// Takes note of what the port can do, as `ib_cm` tells it.
///
/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.modify_port`.
unsafe extern "C" fn modify_port(
    _device: *mut sys::ib_device,
    _port: u32,
    _mask: c_int,
    _change: *mut sys::ib_port_modify,
) -> c_int {
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.get_port_immutable`.
unsafe extern "C" fn get_port_immutable<P: Provider>(
    device: *mut sys::ib_device,
    _port: u32,
    immutable: *mut sys::ib_port_immutable,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this provider, and memory of its own.
    let (subnet, immutable) = unsafe { (subnet_of::<P>(device), &mut *immutable) };
    let (pkeys, gids) = table_lengths(subnet.as_ref());
    (immutable.pkey_tbl_len, immutable.gid_tbl_len) = (pkeys.into(), gids);
    immutable.core_cap_flags = match subnet {
        Some(_) => INFINIBAND,
        None => sys::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP,
    };
    immutable.max_mad_size = 256;
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.get_link_layer`.
unsafe extern "C" fn get_link_layer<P: Provider>(
    device: *mut sys::ib_device,
    _port: u32,
) -> sys::rdma_link_layer {
    // SAFETY: `ib_core` passes a device of this provider.
    match unsafe { subnet_of::<P>(device) } {
        Some(_) => sys::rdma_link_layer_IB_LINK_LAYER_INFINIBAND,
        None => sys::rdma_link_layer_IB_LINK_LAYER_ETHERNET,
    }
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_pkey`.
unsafe extern "C" fn query_pkey<P: Provider>(
    device: *mut sys::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this provider.
    let subnet = unsafe { subnet_of::<P>(device) };
    let pkeys = subnet.map_or([DEFAULT_PKEY, 0, 0, 0], |subnet| subnet.pkeys);
    let (len, _) = table_lengths(subnet.as_ref());
    let Some(found) = pkeys.get(usize::from(index)).filter(|_| index < len) else {
        return EINVAL.to_errno();
    };
    // SAFETY: `ib_core` passes memory of its own.
    unsafe { *pkey = *found };
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.query_gid`, which it calls for InfiniBand.
unsafe extern "C" fn query_gid<P: Provider>(
    device: *mut sys::ib_device,
    _port: u32,
    index: c_int,
    gid: *mut sys::ib_gid,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this provider.
    let subnet = unsafe { subnet_of::<P>(device) };
    let Some(subnet) = subnet.filter(|_| index == 0) else {
        return EINVAL.to_errno();
    };
    // SAFETY: `ib_core` passes a valid device, and memory of its own.
    unsafe {
        (*gid).global.subnet_prefix = subnet.prefix.to_be();
        (*gid).global.interface_id = (*device).node_guid;
    }
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
