// SPDX-License-Identifier: GPL-2.0

//! The address of a queue pair of a node, which is mostly its public one, and the node's number.

use core::{
    fmt,
    net::Ipv6Addr,
    num::NonZeroU64, //
};

use super::{
    invalid::Invalid,
    owner::mixed, //
};

/// A node: 64 random bits that a mount draws when it joins. The next mount is another node, so
/// nothing that was known of the last one is taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NonZeroU64);

impl NodeId {
    /// The length on the wire, in bytes.
    pub const LEN: usize = 8;

    /// Takes a number; `None` for 0, which is no node.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number, not 0.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The part of the network that a node is in, such as a rack: nodes of one are near each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u8);

impl Group {
    /// The number of groups. One node of each may ask an owner at the same time, which has 128
    /// receives.
    pub const COUNT: usize = 64;

    /// Takes a number; `None` if it is not 1 to 64.
    pub const fn new(number: u8) -> Option<Self> {
        match number {
            1..=64 => Some(Self(number)),
            _ => None,
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the group of a port by its place in the network: by the network of its GID, which is
    /// /24 of an IPv4 address, else /64, plus its block of 64 LIDs, as forwarding tables have them.
    /// All GIDs of a subnet of InfiniBand have one network, and with RoCE there is no LID.
    pub fn of_port(gid: [u8; 16], lid: u16) -> Self {
        let network = match gid {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, _, _, net, _] => net,
            [_, _, _, _, _, _, _, net, ..] => net,
        };
        let place = u16::from(network).wrapping_add(lid / 64) % Self::COUNT as u16;
        // CAST: Below the number of groups.
        Self(place as u8 + 1)
    }
}

/// The largest local identifier of one port; those above are of multicast groups.
const LID_MAX: u16 = 0xbfff;

/// The numbers of queue pairs: they have 24 bits, and 0 and 1 are those of the subnet's management.
const QPNS: core::ops::RangeInclusive<u32> = 2..=0x00ff_ffff;

/// The maximum of a key: only privileged programs may use keys with the highest bit.
const QKEY_MAX: u32 = i32::MAX as u32;

/// Returns the key of a queue pair that a random number makes: 1 to 2^31 - 1.
pub const fn random_qkey(random: u64) -> u32 {
    // CAST: The lower bits.
    let qkey = random as u32 & QKEY_MAX;
    match qkey {
        0 => 1,
        _ => qkey,
    }
}

/// A queue pair at a port that the receiver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePair {
    qpn: u32,
    qkey: u32,
}

impl QueuePair {
    /// Names it by its number, 2 to 2^24 - 1, and its key, 1 to 2^31 - 1.
    pub fn new(qpn: u32, qkey: u32) -> Result<Self, Invalid> {
        if !QPNS.contains(&qpn) {
            return Err(Invalid::QueuePair);
        }
        if !(1..=QKEY_MAX).contains(&qkey) {
            return Err(Invalid::QueueKey);
        }
        Ok(Self { qpn, qkey })
    }

    /// Returns its number.
    pub const fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Returns its key.
    pub const fn qkey(&self) -> u32 {
        self.qkey
    }
}

/// The maximum of a service level.
const SL_MAX: u8 = 15;

/// The address of the public queue pair of a node, or of another one [there](Self::with).
///
/// # Invariants
///
/// At least one of `gid` and `lid` is not 0, neither is that of a multicast group, and the numbers
/// are in their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    gid: [u8; 16],
    lid: u16,
    qp: QueuePair,
    sl: u8,
}

impl Address {
    /// The length on the wire, in bytes.
    pub const LEN: usize = 27;

    /// Makes an address; `None` if a part is out of its range. A `gid` or a `lid` of 0 is none.
    /// `qpn` is 2 to 2^24 - 1, as 0 and 1 are queue pairs of the subnet's management; `qkey` is 1
    /// to 2^31 - 1, `sl` 0 to 15.
    pub fn new(gid: [u8; 16], lid: u16, qpn: u32, qkey: u32, sl: u8) -> Option<Self> {
        let is_unicast = gid.first() != Some(&0xff) && lid <= LID_MAX;
        let is_given = lid != 0 || gid != [0; 16];
        let qp = QueuePair::new(qpn, qkey).ok()?;
        // INVARIANT: All parts were just checked.
        (is_unicast && is_given && sl <= SL_MAX).then_some(Self { gid, lid, qp, sl })
    }

    /// Returns the address of another queue pair of the same port.
    pub const fn with(self, qp: QueuePair) -> Self {
        Self { qp, ..self }
    }

    /// Returns the GID, of zeros if there is none.
    pub const fn gid(&self) -> [u8; 16] {
        self.gid
    }

    /// Returns the local identifier; 0 is none.
    pub const fn lid(&self) -> u16 {
        self.lid
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> u32 {
        self.qp.qpn
    }

    /// Returns the key of the queue pair.
    pub const fn qkey(&self) -> u32 {
        self.qp.qkey
    }

    /// Returns the service level.
    pub const fn sl(&self) -> u8 {
        self.sl
    }

    /// Returns the port that it is at.
    pub fn port(&self) -> Port {
        let is_global = self.gid != [0; 16];
        Port {
            gid: self.gid,
            lid: if is_global { 0 } else { self.lid },
        }
    }

    /// Returns whether both are one queue pair; key and service level may differ.
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.qpn() == other.qpn() && self.port() == other.port()
    }

    /// Returns whether a datagram that came from this port and queue pair is from here. Within a
    /// subnet of InfiniBand datagrams have no GID, although their sender has one.
    pub fn is_source(&self, port: Port, qpn: u32) -> bool {
        let is_port = if port.gid == [0; 16] {
            port.lid == self.lid && self.lid != 0
        } else {
            port.gid == self.gid
        };
        self.qpn() == qpn && is_port
    }

    /// Encodes it: GID, then LID, queue pair, key and service level, little-endian.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let parts = self.gid.into_iter().chain(self.lid.to_le_bytes());
        let parts = parts.chain(self.qpn().to_le_bytes());
        let parts = parts.chain(self.qkey().to_le_bytes()).chain([self.sl]);
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = from;
        }
        bytes
    }

    /// Decodes it; `None` if a part is out of its range.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (gid, rest) = bytes.split_first_chunk::<16>()?;
        let (lid, rest) = rest.split_first_chunk::<2>()?;
        let (qpn, rest) = rest.split_first_chunk::<4>()?;
        let (qkey, rest) = rest.split_first_chunk::<4>()?;
        let sl = *rest.first()?;
        let (qpn, qkey) = (u32::from_le_bytes(*qpn), u32::from_le_bytes(*qkey));
        Self::new(*gid, u16::from_le_bytes(*lid), qpn, qkey, sl)
    }
}

/// Shows it as a line of `ibaddr`: the five fields of the driver of 2014, and a GID after them,
/// which that driver ignores.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lid, qpn, qkey, sl) = (self.lid, self.qpn(), self.qkey(), self.sl);
        write!(f, "lid={lid} qpn={qpn} psn=0 qkey={qkey} sl={sl}")?;
        if self.gid == [0; 16] {
            return Ok(());
        }
        write!(f, " gid={}", Ipv6Addr::from(self.gid))
    }
}

/// A port as a source or a destination: by its GID where it has one, by its LID otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    gid: [u8; 16],
    lid: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gid == [0; 16] {
            true => write!(f, "lid={}", self.lid),
            false => write!(f, "gid={}", Ipv6Addr::from(self.gid)),
        }
    }
}

impl Port {
    /// Returns a number that spreads ports evenly over its bits.
    pub fn hash(&self) -> u64 {
        let [low, high] = [0, 8].map(|start| {
            let bytes = self.gid.get(start..).and_then(|gid| gid.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        });
        mixed(mixed(low) ^ high ^ u64::from(self.lid))
    }

    /// Takes the source of a datagram that was received: with a global header its GID, without one
    /// its LID. `None` if neither can be the source of one.
    pub fn of_source(gid: Option<[u8; 16]>, lid: u16) -> Option<Self> {
        let (gid, lid) = (gid.unwrap_or([0; 16]), if gid.is_some() { 0 } else { lid });
        let is_unicast = gid.first() != Some(&0xff) && lid <= LID_MAX;
        let is_given = lid != 0 || gid != [0; 16];
        (is_unicast && is_given).then_some(Self { gid, lid })
    }
}
