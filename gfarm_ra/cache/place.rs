// SPDX-License-Identifier: GPL-2.0

//! The place of a node: the device and the port that a mount names, as far as they can be used.

use kernel::{
    fmt,
    prelude::*,
    str::CStr, //
};
use rdma::{
    DatagramPort,
    Device,
    GidKind,
    LinkLayer,
    PortState, //
};

use crate::proto::cache::{
    address::{
        Address,
        Group, //
    },
    fragment::FragmentLen,
    place::{
        Entry,
        Facts,
        Partition,
        Unusable,
        Wish, //
    }, //
};

/// The options of a mount about its port.
pub(crate) struct Place<'a> {
    /// The name of the device; the first one with an active port if there is none.
    pub(crate) device: Option<&'a CStr>,
    /// The port and its address, as far as the mount names them.
    pub(crate) wish: Wish,
    /// The service level.
    pub(crate) service_level: u8,
    /// The traffic class.
    pub(crate) traffic_class: u8,
    /// The key of the public queue pair.
    pub(crate) qkey: u32,
    /// The part of the network, if the mount names it.
    pub(crate) group: Option<Group>,
}

/// A port that can be used.
pub(crate) struct Found {
    /// The device.
    pub(crate) device: Device,
    /// The port, with the key of the public queue pair.
    pub(crate) port: DatagramPort,
    /// The bytes of its longest datagram.
    pub(crate) mtu_bytes: u32,
    /// The longest fragments.
    pub(crate) longest: FragmentLen,
    /// The part of the network that the port is in.
    pub(crate) group: Group,
    gid: [u8; 16],
    lid: u16,
    service_level: u8,
    /// The traffic class of what is sent.
    pub(super) traffic_class: u8,
}

impl Found {
    /// Returns the address of a queue pair on it.
    pub(super) fn address(&self, qpn: u32) -> Option<Address> {
        Address::new(self.gid, self.lid, qpn, self.port.qkey, self.service_level)
    }
}

impl Place<'_> {
    /// Finds the device and looks at its port; calls `why` if they cannot be used. Sleeps.
    pub(crate) fn find(&self, why: impl FnOnce(fmt::Arguments<'_>)) -> Result<Found> {
        let device = match self.device() {
            Ok(device) => device,
            Err(reason) => {
                match self.device {
                    Some(name) => why(fmt!("ib_devname={name}: {reason}")),
                    None => why(fmt!("{reason}")),
                }
                return Err(reason.errno().into());
            }
        };
        let name = device.name();
        self.look(device).map_err(|reason| {
            why(fmt!("{}: {reason}", &*name));
            reason.errno().into()
        })
    }

    fn device(&self) -> Result<Device, Unusable> {
        let port = self.wish.port;
        match self.device {
            Some(name) => Device::find(name).ok_or(Unusable::NoDevice),
            None => {
                let is_active = |device: &Device| {
                    let port = device.port(port);
                    !device.is_iwarp() && port.is_ok_and(|port| port.is_active)
                };
                Device::find_by(is_active).ok_or(Unusable::NoneActive(port))
            }
        }
    }

    fn look(&self, device: Device) -> Result<Found, Unusable> {
        let number = self.wish.port;
        let state = device.port(number).map_err(|_| Unusable::NoPort(number))?;
        let facts = Facts {
            is_active: state.is_active,
            is_infiniband: state.link == LinkLayer::InfiniBand,
            mtu_bytes: state.active_mtu_bytes,
        };
        let longest = self.wish.fragments(&facts)?;
        let entry = self.wish.address(&facts, table(&device, number, &state))?;
        let partition = self.wish.partition(pkeys(&device, number, &state))?;
        if !partition.is_full() {
            let (device, pkey) = (device.name(), partition.pkey);
            pr_warn!(
                "{}: the port is a limited member of its partition ({pkey:#06x}): nodes that are, \
                 too, do not hear it\n",
                &*device
            );
        }
        Ok(Found {
            port: DatagramPort {
                port: number,
                gid_index: entry.index,
                pkey_index: partition.index,
                qkey: self.qkey,
            },
            mtu_bytes: state.active_mtu_bytes,
            longest,
            group: self.group.unwrap_or(Group::of_port(entry.gid, state.lid)),
            gid: entry.gid,
            lid: state.lid,
            service_level: self.service_level,
            traffic_class: self.traffic_class,
            device,
        })
    }
}

/// Returns the addresses of a port.
fn table<'a>(device: &'a Device, port: u8, state: &PortState) -> impl Iterator<Item = Entry> + 'a {
    let count = u8::try_from(state.gid_count).unwrap_or(u8::MAX);
    (0..count).filter_map(move |index| {
        let (gid, kind) = device.gid_entry(port, index).ok()?;
        Some(Entry {
            index,
            gid: gid.0,
            is_udp: kind == GidKind::Udp,
        })
    })
}

/// Returns the partition keys of a port.
fn pkeys<'a>(
    device: &'a Device,
    port: u8,
    state: &PortState,
) -> impl Iterator<Item = Partition> + 'a {
    (0..state.pkey_count).filter_map(move |index| {
        let pkey = device.pkey(port, index).ok()?;
        Some(Partition { index, pkey })
    })
}
