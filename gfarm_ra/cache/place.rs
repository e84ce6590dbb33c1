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

/// A queue pair of the node, as others reach it, and its port.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Local {
    /// The port, with the key of the public queue pair.
    pub(super) port: DatagramPort,
    /// The address of the queue pair.
    pub(super) address: Address,
}

/// The identifiers of a port.
struct Identity {
    gid_index: u8,
    gid: [u8; 16],
    lid: u16,
    partition: Partition,
}

/// A port that can be used.
pub(crate) struct Found {
    /// The device.
    pub(crate) device: Device,
    /// The bytes of its longest datagram.
    pub(crate) mtu_bytes: u32,
    /// The longest fragments.
    pub(crate) longest: FragmentLen,
    /// The part of the network that the port was in at the mount.
    pub(crate) group: Group,
    /// The traffic class of what is sent.
    pub(super) traffic_class: u8,
    wish: Wish,
    identity: Identity,
    qkey: u32,
    service_level: u8,
}

impl Found {
    /// Returns the port, with the key of the public queue pair.
    pub(super) fn port(&self) -> DatagramPort {
        self.port_as(&self.identity)
    }

    /// Returns a queue pair on it, as it was found.
    pub(super) fn local(&self, qpn: u32) -> Option<Local> {
        self.local_as(&self.identity, qpn)
    }

    /// Looks at the port of a queue pair anew. Sleeps.
    pub(super) fn look_again(&self, present: &Local) -> Result<Local, Unusable> {
        let address = &present.address;
        let seen = state(&self.device, &self.wish)?;
        self.wish.still_fits(&seen.1, self.longest)?;
        let identity = identity(&self.device, &self.wish, &seen, Some(&address.gid()))?;
        let local = self.local_as(&identity, address.qpn());
        local.ok_or(Unusable::NoGid)
    }

    fn port_as(&self, identity: &Identity) -> DatagramPort {
        DatagramPort {
            port: self.wish.port,
            gid_index: identity.gid_index,
            pkey_index: identity.partition.index,
            qkey: self.qkey,
        }
    }

    fn local_as(&self, identity: &Identity, qpn: u32) -> Option<Local> {
        let Identity { gid, lid, .. } = *identity;
        Some(Local {
            port: self.port_as(identity),
            address: Address::new(gid, lid, qpn, self.qkey, self.service_level)?,
        })
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
        let seen = state(&device, &self.wish)?;
        let longest = self.wish.fragments(&seen.1)?;
        let identity = identity(&device, &self.wish, &seen, None)?;
        if !identity.partition.is_full() {
            let (device, pkey) = (device.name(), identity.partition.pkey);
            pr_warn!(
                "{}: the port is a limited member of its partition ({pkey:#06x}): nodes that are, \
                 too, do not hear it\n",
                &*device
            );
        }
        Ok(Found {
            mtu_bytes: seen.0.active_mtu_bytes,
            longest,
            group: self
                .group
                .unwrap_or(Group::of_port(identity.gid, identity.lid)),
            traffic_class: self.traffic_class,
            wish: self.wish,
            identity,
            qkey: self.qkey,
            service_level: self.service_level,
            device,
        })
    }
}

/// Returns the attributes of the port that is asked for. Sleeps.
fn state(device: &Device, wish: &Wish) -> Result<(PortState, Facts), Unusable> {
    let number = wish.port;
    let state = device.port(number).map_err(|_| Unusable::NoPort(number))?;
    let facts = Facts {
        is_active: state.is_active,
        is_infiniband: state.link == LinkLayer::InfiniBand,
        mtu_bytes: state.active_mtu_bytes,
    };
    Ok((state, facts))
}

/// Returns the identifiers that a port has for a node, whose GID is `present`, if it has one yet.
fn identity(
    device: &Device,
    wish: &Wish,
    (state, facts): &(PortState, Facts),
    present: Option<&[u8; 16]>,
) -> Result<Identity, Unusable> {
    let entry = wish.address(facts, table(device, wish.port, state), present)?;
    Ok(Identity {
        gid_index: entry.index,
        gid: entry.gid,
        lid: state.lid,
        partition: wish.partition(pkeys(device, wish.port, state))?,
    })
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
