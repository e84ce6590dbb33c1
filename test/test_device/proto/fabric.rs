// SPDX-License-Identifier: GPL-2.0

//! The subnet of InfiniBand that the devices of the module are on, and what its manager gives their
//! ports.

use ferro_proto::text;

/// The ports of the subnet at most.
pub const PORTS_MAX: usize = 4;

/// The places of a table of partition keys.
pub const PKEYS: usize = 4;

/// The prefix of a subnet that has no other one.
const PREFIX: u64 = 0xfe80_0000_0000_0000;

/// The part of a key that names a partition; the other bit says that the port is a full member.
const PARTITION: u16 = 0x7fff;

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The local identifier.
    pub lid: u16,
    /// The prefix of its global identifier.
    pub prefix: u64,
    /// The partition keys; 0 is an empty place.
    pub pkeys: [u16; PKEYS],
}

/// The property of a port that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The local identifier.
    Lid,
    /// The table of partition keys.
    Pkeys,
    /// Another manager has begun, maybe with another prefix: clients are to register anew.
    Manager,
}

/// The subnet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    ports: [Option<Port>; PORTS_MAX],
}

impl Fabric {
    /// Creates a subnet of `count` ports, which are full members of the default partition.
    pub fn new(count: usize) -> Self {
        let mut this = Self::default();
        for (lid, place) in (0x11..).zip(this.ports.iter_mut().take(count)) {
            *place = Some(Port {
                lid,
                prefix: PREFIX,
                pkeys: [0xffff, 0, 0, 0],
            });
        }
        this
    }

    /// Returns a port.
    pub fn port(&self, number: usize) -> Option<&Port> {
        self.ports.get(number)?.as_ref()
    }

    /// Returns the number of the port to which packets to a local identifier go.
    pub fn of_lid(&self, lid: u16) -> Option<usize> {
        let is_it = |port: &Option<Port>| port.is_some_and(|port| port.lid == lid);
        self.ports.iter().position(is_it)
    }

    /// Changes a port as `port=N lid=N`, `port=N pkeys=N,N...` or `port=N prefix=N` says; returns
    /// which one, and what of it. [`None`] if the text is none of them.
    pub fn change(&mut self, rule: &str) -> Option<(usize, Change)> {
        let words = rule.as_bytes().split(u8::is_ascii_whitespace);
        let mut words = words.filter(|word| !word.is_empty());
        let mut value = |name: &[u8]| words.next()?.strip_prefix(name);
        let number = usize::from(read(value(b"port=")?)?);
        let port = self.ports.get_mut(number)?.as_mut()?;
        let (name, values) = split(words.next()?)?;
        if words.next().is_some() {
            return None;
        }
        let change = match name {
            b"lid" => {
                port.lid = read(values).filter(|lid| (1..0xc000).contains(lid))?;
                Change::Lid
            }
            b"pkeys" => {
                let mut pkeys = [0; PKEYS];
                let mut places = pkeys.iter_mut();
                for written in values.split(|c| *c == b',') {
                    *places.next()? = read(written)?;
                }
                port.pkeys = pkeys;
                Change::Pkeys
            }
            b"prefix" => {
                port.prefix = text::parse_u64(values, 0).ok()?;
                Change::Manager
            }
            _ => return None,
        };
        Some((number, change))
    }
}

fn read(written: &[u8]) -> Option<u16> {
    u16::try_from(text::parse_u64(written, 0).ok()?).ok()
}

fn split(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|c| *c == b'=')?;
    Some((word.get(..at)?, word.get(at.checked_add(1)?..)?))
}

/// Returns whether a port takes packets with the partition key `sent` into a queue pair with the
/// key `own` (InfiniBand architecture, 10.9.3): one of both ends at least is a full member.
pub const fn is_same_partition(own: u16, sent: u16) -> bool {
    let is_valid = own & PARTITION != 0;
    is_valid && (own ^ sent) & PARTITION == 0 && (own | sent) & !PARTITION != 0
}
