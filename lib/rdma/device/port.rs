// SPDX-License-Identifier: GPL-2.0

//! The state of a port, and its global identifiers.

use super::Device;
use crate::{
    address_handle::Gid,
    proto::address::LinkLayer,
    sys, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// The attributes of a port, as they were when they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// Whether it sends and receives.
    pub is_active: bool,
    /// The network that it is connected to.
    pub link: LinkLayer,
    /// The most bytes of a datagram.
    pub active_mtu_bytes: u32,
    /// Its local identifier; 0 on Ethernet, and without a subnet manager.
    pub lid: u16,
    /// The number of places in its table of global identifiers, some of them empty.
    pub gid_count: u32,
    /// The number of places in its table of partition keys, some of them empty.
    pub pkey_count: u16,
}

/// The packets that are sent to a global identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// Packets of InfiniBand.
    InfiniBand,
    /// Ethernet frames of their own type (RoCE version 1).
    Ethernet,
    /// UDP packets (RoCE version 2).
    Udp,
}

impl GidKind {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            sys::ib_gid_type_IB_GID_TYPE_IB => Some(Self::InfiniBand),
            sys::ib_gid_type_IB_GID_TYPE_ROCE => Some(Self::Ethernet),
            sys::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP => Some(Self::Udp),
            _ => None,
        }
    }
}

impl Device {
    /// Returns the state of a port; the numbers of ports begin with 1. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there is no such port, or what the device says.
    pub fn port(&self, port: u8) -> Result<PortState> {
        let mut raw = sys::rdma_helper_port::default();
        // SAFETY: The device is valid; the function writes the structure.
        to_result(unsafe { sys::rdma_helper_query_port(self.as_raw(), port.into(), &mut raw) })?;
        Ok(PortState {
            is_active: raw.is_active,
            link: match raw.is_infiniband {
                true => LinkLayer::InfiniBand,
                false => LinkLayer::Ethernet,
            },
            active_mtu_bytes: raw.active_mtu,
            lid: raw.lid,
            gid_count: raw.gid_count,
            pkey_count: raw.pkey_count,
        })
    }

    /// Returns the global identifier at an index of a port's table, and its kind. Any context.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such port, or nothing at this index.
    pub fn gid_entry(&self, port: u8, index: u8) -> Result<(Gid, GidKind)> {
        let (mut gid, mut kind) = ([0; 16], 0);
        // SAFETY: The device is valid; the function writes 16 bytes and the number.
        to_result(unsafe {
            sys::rdma_helper_gid_at(
                self.as_raw(),
                port.into(),
                index.into(),
                gid.as_mut_ptr(),
                &mut kind,
            )
        })?;
        Ok((Gid(gid), GidKind::from_raw(kind).ok_or(EINVAL)?))
    }

    /// Returns the partition key at an index of a port's table, as it was when the device has told
    /// of the last change; 0 is an empty place. Any context.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there is no such port or index.
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16> {
        let mut pkey = 0;
        // SAFETY: The device is valid; the function writes the key.
        to_result(unsafe {
            sys::ib_get_cached_pkey(self.as_raw(), port.into(), index.into(), &mut pkey)
        })?;
        Ok(pkey)
    }
}
