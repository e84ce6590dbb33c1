// SPDX-License-Identifier: GPL-2.0

//! The bodies of `Hello` and `Members`: what nodes tell each other of the nodes that they know.
//!
//! ```text
//!   0  nonce      4    of a Hello: a random number; of its answer, Members: the same one
//!   4  cursor     2    of a Hello: where the answer's list begins; of Members: where the next does
//!   6  count      1    the number of records behind the sender's, at most 20
//!   7  reserved   1    0
//!   8  records   45    each: the sender's first
//!
//!   0  node       8    not 0
//!   8  address   27    GID, LID, queue pair, key, service level
//!  35  standing   1    0 alive, 1 suspected, 2 dead, 3 left
//!  36  boot       4
//!  40  incarnation 4
//!  44  group      1    1 to 64
//! ```

use core::fmt;

use super::{
    address::{
        Address,
        Group,
        NodeId, //
    },
    peer::{
        Claim,
        Record,
        Standing, //
    },
};

/// The maximum number of records behind the sender's.
pub const RECORDS_MAX: usize = 20;

const HEAD_LEN: usize = 8;

/// The length of a record, in bytes.
pub const RECORD_LEN: usize = 45;

/// The maximum length of a body, in bytes.
pub const BODY_LEN_MAX: usize = HEAD_LEN + RECORD_LEN * (RECORDS_MAX + 1);

/// The reason why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The body has more or fewer bytes than its records need.
    Length,
    /// The body has more than [`RECORDS_MAX`] records behind the sender's.
    Count,
    /// The reserved byte is not 0.
    Reserved,
    /// A record is of no node, of no address, no standing or no group, or the sender's is not its
    /// own.
    Record,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "list of nodes with missing or excess bytes",
            Self::Count => "list of too many nodes",
            Self::Reserved => "list of nodes with a reserved byte that is not 0",
            Self::Record => "list of nodes with an invalid one",
        })
    }
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let parts = self.node.get().to_le_bytes().into_iter();
        let parts = parts.chain(self.address.to_bytes());
        let parts = parts.chain([self.claim.standing as u8]);
        let parts = parts.chain(self.boot.to_le_bytes());
        let parts = parts.chain(self.claim.incarnation.to_le_bytes());
        let parts = parts.chain([self.group.get()]);
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = from;
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let (node, rest) = bytes.split_first_chunk::<{ NodeId::LEN }>()?;
        let (address, rest) = rest.split_first_chunk::<{ Address::LEN }>()?;
        let (standing, rest) = rest.split_first()?;
        let (boot, rest) = rest.split_first_chunk::<4>()?;
        let (incarnation, rest) = rest.split_first_chunk::<4>()?;
        Some(Self {
            node: NodeId::new(u64::from_le_bytes(*node))?,
            address: Address::from_bytes(address)?,
            boot: u32::from_le_bytes(*boot),
            claim: Claim {
                incarnation: u32::from_le_bytes(*incarnation),
                standing: Standing::from_raw(*standing)?,
            },
            group: Group::new(*rest.first()?)?,
        })
    }
}

/// A body that was received.
#[derive(Clone, Copy, Debug)]
pub struct Gossip<'a> {
    nonce: u32,
    cursor: u16,
    sender: Record,
    records: &'a [u8],
}

impl<'a> Gossip<'a> {
    /// Reads a body; `from` is the sender by the head of its datagram.
    pub fn parse(body: &'a [u8], from: NodeId) -> Result<Self, Malformed> {
        let (head, rest) = body
            .split_first_chunk::<HEAD_LEN>()
            .ok_or(Malformed::Length)?;
        let [n0, n1, n2, n3, c0, c1, count, reserved] = *head;
        if reserved != 0 {
            return Err(Malformed::Reserved);
        }
        if usize::from(count) > RECORDS_MAX {
            return Err(Malformed::Count);
        }
        let (sender, records) = rest
            .split_first_chunk::<RECORD_LEN>()
            .ok_or(Malformed::Length)?;
        if records.len() != usize::from(count).wrapping_mul(RECORD_LEN) {
            return Err(Malformed::Length);
        }
        let sender = Record::from_bytes(sender).ok_or(Malformed::Record)?;
        let gossip = Self {
            nonce: u32::from_le_bytes([n0, n1, n2, n3]),
            cursor: u16::from_le_bytes([c0, c1]),
            sender,
            records,
        };
        let counted = super::count(gossip.records());
        let is_valid = sender.node == from && counted == usize::from(count);
        is_valid.then_some(gossip).ok_or(Malformed::Record)
    }

    /// Returns the number that an answer repeats.
    pub const fn nonce(&self) -> u32 {
        self.nonce
    }

    /// Returns where a list begins.
    pub const fn cursor(&self) -> u16 {
        self.cursor
    }

    /// Returns what the sender tells of itself.
    pub const fn sender(&self) -> Record {
        self.sender
    }

    /// Returns what it tells of others.
    pub fn records(&self) -> impl Iterator<Item = Record> + 'a {
        let bytes = self.records.chunks_exact(RECORD_LEN);
        bytes.filter_map(|bytes| Record::from_bytes(bytes.first_chunk()?))
    }
}

/// A body that is written.
#[derive(Debug)]
pub struct GossipWriter<'b> {
    out: &'b mut [u8; BODY_LEN_MAX],
    count: u8,
}

impl<'b> GossipWriter<'b> {
    /// Starts a body.
    pub fn new(out: &'b mut [u8; BODY_LEN_MAX], nonce: u32, sender: Record) -> Self {
        let [n0, n1, n2, n3] = nonce.to_le_bytes();
        let head = [n0, n1, n2, n3, 0, 0, 0, 0];
        for (to, from) in out
            .iter_mut()
            .zip(head.into_iter().chain(sender.to_bytes()))
        {
            *to = from;
        }
        Self { out, count: 0 }
    }

    /// Returns whether no record has room any more.
    pub const fn is_full(&self) -> bool {
        self.count as usize >= RECORDS_MAX
    }

    /// Adds a record; returns whether it had room.
    pub fn push(&mut self, record: Record) -> bool {
        let place = usize::from(self.count).wrapping_add(1);
        let mut places = self
            .out
            .get_mut(HEAD_LEN..)
            .map(|p| p.chunks_exact_mut(RECORD_LEN));
        let Some(place) = places.as_mut().and_then(|places| places.nth(place)) else {
            return false;
        };
        for (to, from) in place.iter_mut().zip(record.to_bytes()) {
            *to = from;
        }
        self.count = self.count.wrapping_add(1);
        true
    }

    /// Ends the body; returns its bytes.
    pub fn finish(self, cursor: u16) -> &'b [u8] {
        let [c0, c1] = cursor.to_le_bytes();
        for (to, from) in self.out.iter_mut().skip(4).zip([c0, c1, self.count]) {
            *to = from;
        }
        let records = usize::from(self.count).wrapping_add(1);
        let len = records.wrapping_mul(RECORD_LEN).wrapping_add(HEAD_LEN);
        self.out.get(..len).unwrap_or(&[])
    }
}
