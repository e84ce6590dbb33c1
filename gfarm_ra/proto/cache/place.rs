// SPDX-License-Identifier: GPL-2.0

//! Whether a port of an RDMA device is one for a node, and with which of its addresses.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    fragment::FragmentLen,
    wire::COMMON_LEN_MAX, //
};

/// The port that a mount asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The number of the port, from 1 on (`ib_port=`).
    pub port: u8,
    /// The index of the port's address (`ib_gid=`); the first good one if there is none.
    pub gid_index: Option<u8>,
    /// The bytes of the longest datagram with data (`ib_mtu=`), 256 to 4096; those of the port if
    /// there are none.
    pub mtu_bytes: Option<u32>,
    /// The partition key (`ib_pkey=`); the first one of the port's table if there is none.
    pub pkey: Option<u16>,
}

/// A place in the port's table of partition keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its index in the table.
    pub index: u16,
    /// The key: 15 bits that name the partition, and [`FULL`](Self::FULL).
    pub pkey: u16,
}

impl Partition {
    /// The bit of a key which says that the port is a full member. Two that are not do not hear one
    /// another.
    const FULL: u16 = 0x8000;

    /// The default partition, in which a port without a table is.
    const DEFAULT: Self = Self {
        index: 0,
        pkey: 0xffff,
    };

    /// Returns whether the port is a full member.
    pub const fn is_full(&self) -> bool {
        self.pkey & Self::FULL != 0
    }
}

/// The attributes of a port, as the device gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether it sends and receives.
    pub is_active: bool,
    /// Whether it is one of InfiniBand; otherwise one of Ethernet (RoCE).
    pub is_infiniband: bool,
    /// The bytes of its longest datagram.
    pub mtu_bytes: u32,
}

/// An entry of a port's table of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its index in the table.
    pub index: u8,
    /// The address.
    pub gid: [u8; 16],
    /// Whether packets to it are UDP packets (RoCE v2).
    pub is_udp: bool,
}

/// The reason why a device or a port cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No device has the name.
    NoDevice,
    /// No device has an active port of this number.
    NoneActive(u8),
    /// The device has no such port.
    NoPort(u8),
    /// The port is not active.
    Down(u8),
    /// The table has no address at this index, or on Ethernet none for UDP packets.
    NoGidAt(u8),
    /// The table has no address that can be used.
    NoGid,
    /// The table has no key of this partition.
    NoPartition(u16),
    /// The datagrams of the port are shorter than what is asked for.
    Mtu {
        /// The length that is asked for, in bytes.
        wished: u32,
        /// The length of the port's datagrams, in bytes.
        port: u32,
    },
    /// The datagrams of the port, of so many bytes, are too short for messages.
    Short(u32),
    /// The datagrams of the port have become shorter than what the node sends and asks for.
    Shorter {
        /// The length of the node's fragments, in bytes.
        needed: u32,
        /// The length of the port's datagrams, in bytes.
        port: u32,
    },
}

impl Unusable {
    /// Returns the error of the mount.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoDevice | Self::NoneActive(_) | Self::NoPort(_) => Errno::ENODEV,
            Self::Down(_) => Errno::ENETDOWN,
            Self::NoGidAt(_) | Self::NoGid | Self::NoPartition(_) => Errno::EADDRNOTAVAIL,
            Self::Mtu { .. } | Self::Short(_) | Self::Shorter { .. } => Errno::EMSGSIZE,
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => f.write_str("there is no such RDMA device: rdma link lists them"),
            Self::NoneActive(port) => {
                write!(
                    f,
                    "no RDMA device has an active port {port}: rdma link lists them"
                )
            }
            Self::NoPort(port) => write!(f, "ib_port={port}: the device has no such port"),
            Self::Down(port) => write!(f, "port {port} is not active"),
            Self::NoGidAt(index) => {
                write!(f, "ib_gid={index}: the port has no usable address there")
            }
            Self::NoGid => f.write_str("the port has no address for UDP packets (RoCE v2)"),
            Self::NoPartition(pkey) => {
                write!(
                    f,
                    "ib_pkey={pkey:#x}: the port is no member of this partition"
                )
            }
            Self::Mtu { wished, port } => {
                write!(
                    f,
                    "ib_mtu={wished}: the datagrams of the port have {port} bytes"
                )
            }
            Self::Short(port) => write!(
                f,
                "the datagrams of the port have {port} bytes, messages up to {COMMON_LEN_MAX}"
            ),
            Self::Shorter { needed, port } => write!(
                f,
                "the datagrams of the port have {port} bytes by now, those of the node {needed}"
            ),
        }
    }
}

impl Wish {
    /// Returns the longest fragments that the node sends and asks for.
    pub fn fragments(&self, facts: &Facts) -> Result<FragmentLen, Unusable> {
        let port = facts.mtu_bytes;
        if !facts.is_active {
            return Err(Unusable::Down(self.port));
        }
        // CAST: A small constant.
        if port < COMMON_LEN_MAX as u32 {
            return Err(Unusable::Short(port));
        }
        let wished = self.mtu_bytes.unwrap_or(port);
        let fits = FragmentLen::largest(wished).filter(|_| wished <= port);
        fits.ok_or(Unusable::Mtu { wished, port })
    }

    /// Checks that the port has room for the fragments that a node was made with: their length does
    /// not change.
    pub fn still_fits(&self, facts: &Facts, longest: FragmentLen) -> Result<(), Unusable> {
        let port = facts.mtu_bytes;
        let needed = longest.bytes();
        // What the mount asks for was there, so the port has changed.
        let is_shorter = facts.is_active && port < needed;
        match self.fragments(facts) {
            _ if is_shorter => Err(Unusable::Shorter { needed, port }),
            Err(Unusable::Mtu { .. }) => Ok(()),
            seen => seen.map(|_| ()),
        }
    }

    /// Returns the address of the port: that at the index which the mount has named; else the first
    /// of InfiniBand, and on Ethernet one of UDP packets, if there is one of an IPv4 address.
    ///
    /// A node that has an address keeps `present` wherever it is in the table by now; else it takes
    /// one of the same family, as one of the other does not reach the same nodes.
    pub fn address(
        &self,
        facts: &Facts,
        table: impl Iterator<Item = Entry>,
        present: Option<&[u8; 16]>,
    ) -> Result<Entry, Unusable> {
        let is_mapped = |gid: &[u8; 16]| gid.starts_with(&[0; 10]);
        let is_good = |entry: &Entry| facts.is_infiniband || entry.is_udp;
        let mut good = table.filter(is_good);
        if let Some(index) = self.gid_index {
            let found = good.find(|entry| entry.index == index);
            return found.ok_or(Unusable::NoGidAt(index));
        }
        let is_ethernet = !facts.is_infiniband;
        let is_like = |gid: &[u8; 16]| present.is_none_or(|now| is_mapped(now) == is_mapped(gid));
        let rank = |entry: &Entry| {
            let is_present = present == Some(&entry.gid);
            (is_present, is_ethernet && is_mapped(&entry.gid))
        };
        let prefer = |best: Entry, next: Entry| match rank(&next) > rank(&best) {
            true => next,
            false => best,
        };
        let kept = good.filter(|entry| !is_ethernet || is_like(&entry.gid));
        kept.reduce(prefer).ok_or(Unusable::NoGid)
    }

    /// Returns the partition: that of the key which the mount has named, whose highest bit does not
    /// count, in the place of a full member if there is one (as `ib_find_pkey()`); else the first
    /// of the table.
    pub fn partition(
        &self,
        mut table: impl Iterator<Item = Partition>,
    ) -> Result<Partition, Unusable> {
        let Some(pkey) = self.pkey else {
            return Ok(table.next().unwrap_or(Partition::DEFAULT));
        };
        let name = |pkey: u16| pkey & !Partition::FULL;
        let is_it = |entry: &Partition| name(pkey) != 0 && name(entry.pkey) == name(pkey);
        let prefer = |best: Partition, next: Partition| match next.is_full() && !best.is_full() {
            true => next,
            false => best,
        };
        let found = table.filter(is_it).reduce(prefer);
        found.ok_or(Unusable::NoPartition(pkey))
    }
}
