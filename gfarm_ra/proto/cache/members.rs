// SPDX-License-Identifier: GPL-2.0

//! The nodes that a mount knows, and how it learns of them.
//!
//! A node probes one other node a second with a `Hello`, which has to be answered with `Members`.
//! Both bring what has changed lately, and a part of the list of all nodes, so every change reaches
//! all nodes in a time that grows with the logarithm of their number, and each node sends and
//! receives the same few datagrams for any number of nodes. A node that joins needs one that it
//! knows by hand, reads that one's list, and makes itself known to each node in it.
//!
//! All nodes that have the key are trusted with what they tell of others. Still a new node counts
//! only after it has answered a probe, after it has greeted this node by its number, or after a
//! member that had its answer has told of it. What was recorded and is sent again counts for
//! nothing: see [`Members::hello`].

mod exchange;
mod forgotten;
mod rankings;
mod table;

use core::{
    iter,
    ops::DerefMut, //
};

use ferro_proto::errno::Errno;

pub use self::table::PeerPlace;
use self::{
    rankings::Rankings,
    table::Table, //
};
use super::{
    address::{
        Address,
        Group,
        NodeId,
        Port, //
    },
    owner::{
        self,
        ChunkKey,
        Owners,
        Population, //
    },
    peer::{
        Peer,
        Record,
        Standing, //
    },
    responder::Discarded,
};

/// The maximum number of peers.
pub const PEERS_MAX: usize = 16_384;

/// The time between two probes of members that nothing is wrong with, in microseconds.
pub const ROUND_US: u64 = 1_000_000;

/// The time for which a new node makes itself known to each that it is told of, from the last part
/// of the list on that it reads, in microseconds.
const GREET_US: u64 = 10_000_000;

/// The number of members that are probed at once: of a network that loses 5 % of all datagrams they
/// are all silent in one case of 10,000, and so they are if a tenth of them is dead.
const DOUBT_PROBES: usize = 4;

/// The number of nodes that are told when a node leaves.
const TOLD_AT_END: u8 = 8;

/// The reason why a message of a node is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// The datagram came from another place than the one that it names as its own.
    Source,
    /// The sender has the number of the receiver.
    Own,
    /// The table is full.
    Full,
    /// The message answers no probe.
    Unasked,
    /// Its number has come before, or is too old to tell.
    Repeated,
}

/// A `Hello` to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'b> {
    /// The address of the receiver.
    pub to: Address,
    /// The number of the receiver, if it is known.
    pub node: Option<NodeId>,
    /// Whether the receiver does not answer: its address is to be looked up anew then, as another
    /// machine may have it by now, with another Ethernet address. Adapters keep that one with the
    /// address handle.
    pub is_lost: bool,
    /// The body.
    pub body: &'b [u8],
}

/// The members, in memory that the caller has: a place for each of at most [`PEERS_MAX`] peers.
/// One of them is found by its number, or where it is, without a look at the others.
#[derive(Debug)]
pub struct Members<S> {
    me: Record,
    table: Table<S>,
    rankings: Rankings,
    /// The place from which the next round looks for a peer to probe.
    turn: usize,
    /// The place from which the next peer is looked for whose probe is due.
    next_probe: usize,
    /// The place at which the next search for news begins.
    news_from: usize,
    round_us: u64,
    /// The place at which the list of members goes on that is read at first; `None` when it is
    /// read.
    join: Option<u16>,
    /// The time at which it greets the next node, and until which it does, in microseconds.
    greet_us: u64,
    greet_end_us: u64,
    leaving: u8,
}

/// Returns the peers that live, and their groups.
fn live<S: DerefMut<Target = [PeerPlace]>>(
    table: &Table<S>,
) -> impl Iterator<Item = (NodeId, Group)> + '_ {
    let live = table.iter().filter(|peer| peer.is_live());
    live.filter_map(|peer| Some((peer.node()?, peer.group()?)))
}

impl<S: DerefMut<Target = [PeerPlace]>> Members<S> {
    /// Creates the table of a node that begins as `me`, with the peers that have places. `random`
    /// spreads the rounds of nodes that start together, and whom each begins with: nodes that have
    /// read one list would all probe the same one at a time, and tell each other little.
    pub fn new(me: Record, places: S, now_us: u64, random: u32) -> Self {
        let delay_us = u64::from(random) % ROUND_US;
        Self {
            me,
            table: Table::new(places),
            rankings: Rankings::new(),
            // CAST: Any number.
            turn: random as usize,
            next_probe: 0,
            news_from: 0,
            round_us: now_us.saturating_add(delay_us),
            join: Some(0),
            greet_us: now_us,
            greet_end_us: now_us.saturating_add(GREET_US),
            leaving: 0,
        }
    }

    /// Returns what this node tells of itself.
    pub const fn me(&self) -> Record {
        self.me
    }

    /// Returns all peers.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> + Clone {
        self.table.iter()
    }

    /// Finds a peer, to change what does not tell whether it lives.
    fn find(&mut self, node: NodeId) -> Option<&mut Peer> {
        let index = self.table.of_node(node)?;
        self.table.get_mut(index)
    }

    /// Returns a peer by its number.
    pub fn get(&self, node: NodeId) -> Option<&Peer> {
        self.table.get(self.table.of_node(node)?)
    }

    /// Returns whether a node is this one, or one that answers.
    pub fn is_live(&self, node: NodeId) -> bool {
        node == self.me.node || self.get(node).is_some_and(Peer::is_live)
    }

    /// Returns the group of a node; one that is not known is in that of this node.
    pub fn group_of(&self, node: NodeId) -> Group {
        let group = self.get(node).and_then(Peer::group);
        group.unwrap_or(self.me.group)
    }

    /// Returns how many nodes live, this one among them, of each group.
    pub fn population(&mut self) -> Population {
        let (me, table) = (self.me.group, &self.table);
        self.rankings.renew(table.changes(), me, live(table))
    }

    /// Returns the owners of a chunk for a requester, among this node and the live ones without
    /// those that are excluded: this node is not, and of others
    /// [`EXCLUDED_MAX`](super::excluded::EXCLUDED_MAX) at most. All nodes are looked at only for
    /// a chunk that was not asked for lately, or after a change among those that live.
    pub fn owners(
        &mut self,
        chunk: ChunkKey,
        requester: NodeId,
        is_excluded: impl Fn(NodeId) -> bool,
    ) -> Owners {
        let group = self.group_of(requester);
        let population = self.population();
        let (me, table, rankings) = (&self.me, &self.table, &mut self.rankings);
        let is_out = |node| node != me.node && is_excluded(node);
        let (near, root) = owner::hashes(chunk, requester, owner::parts(population.of(group)));
        let own = || iter::once((me.node, me.group)).chain(live(table));
        let mut first = |hash, within| rankings.of(hash, within, own()).first(is_out);
        // There is one, as no more are excluded.
        let root_node = first(root, None).unwrap_or(me.node);
        let within = population.near(group);
        let near_node = match near == root && within.is_none() {
            true => root_node,
            // Of the group of another node all may be excluded.
            false => first(near, within).unwrap_or(root_node),
        };
        Owners {
            near: near_node,
            root: root_node,
        }
    }

    /// Returns how many nodes were looked at for owners so far.
    pub const fn looks(&self) -> u64 {
        self.rankings.looks()
    }

    /// Returns how often a change is told: enough for it to reach all nodes.
    fn news(&self) -> u8 {
        // CAST: At most 64 bits.
        let bits = usize::BITS.wrapping_sub(self.table.len().leading_zeros()) as u8;
        bits.saturating_mul(2).saturating_add(3)
    }

    /// Returns a free place, or that of a node that is gone.
    fn vacancy(&self) -> Option<usize> {
        let index_of = |is_it: fn(Option<&Peer>) -> bool| {
            (0..self.table.len()).find(|index| is_it(self.table.get(*index)))
        };
        let gone = || index_of(|peer| peer.is_some_and(Peer::is_replaceable));
        index_of(|peer| peer.is_none()).or_else(gone)
    }

    /// Registers a peer by hand. What is registered already changes only its key and service level.
    ///
    /// `EFBIG` if there is no place, `EINVAL` if it is this node.
    pub fn add(&mut self, address: Address, now_us: u64) -> Result<(), Errno> {
        if self.me.address.is_same_place(&address) {
            return Err(Errno::EINVAL);
        }
        let index = self.table.at(&address).next();
        if let Some(peer) = index.and_then(|index| self.table.get_mut(index)) {
            peer.set_by_hand(address, now_us);
            return Ok(());
        }
        let index = self.vacancy().ok_or(Errno::EFBIG)?;
        self.table.set(index, Some(Peer::by_hand(address, now_us)));
        Ok(())
    }

    /// Forgets a peer. If it lives and other members know it, it will be learned again.
    ///
    /// `ENOENT` if it is not known.
    pub fn remove(&mut self, address: Address) -> Result<(), Errno> {
        let index = self.table.at(&address).next().ok_or(Errno::ENOENT)?;
        self.table.set(index, None);
        Ok(())
    }

    /// Leaves: [`poll`](Self::poll) tells some members, who tell the others. Nothing is probed or
    /// answered any more.
    pub fn leave(&mut self) {
        self.me.claim.standing = Standing::Left;
        self.leaving = TOLD_AT_END;
    }

    /// Takes note that this node has another address. All are told, each before the next request to
    /// it: they take nothing from another place than they know. It is a new claim, and so members
    /// tell each other.
    pub fn moved(&mut self, address: Address, now_us: u64) {
        self.me.address = address;
        self.me.claim.incarnation = self.me.claim.incarnation.saturating_add(1);
        self.table.iter_mut().for_each(Peer::estranged);
        (self.greet_us, self.greet_end_us) = (now_us, now_us.saturating_add(GREET_US));
    }

    fn has_left(&self) -> bool {
        self.me.claim.standing == Standing::Left
    }

    /// A request to a node was not answered: it is probed at once.
    pub fn unanswered(&mut self, node: NodeId, now_us: u64) {
        if let Some(peer) = self.find(node) {
            peer.check(now_us);
        }
    }

    /// Probes a few members at once, unless they are probed already: one that answers shows that
    /// this node is not cut off from them.
    pub fn doubt(&mut self, now_us: u64) {
        let is_idle = |peer: &Peer| peer.is_live() && !peer.is_probed();
        for _ in 0..DOUBT_PROBES {
            self.next_turn(now_us, is_idle);
        }
    }

    /// Counts pages that have come from a node.
    pub fn gave(&mut self, node: NodeId, pages: u64) {
        if let Some(peer) = self.find(node) {
            peer.gave(pages);
        }
    }

    /// Looks at where a request comes from: it has to be from a member, to have come from its
    /// place, and to have a number that is new. Returns the member's address.
    pub fn admit(
        &mut self,
        node: NodeId,
        source: Port,
        source_qpn: u32,
        sequence: u64,
    ) -> Result<Address, Discarded> {
        let peer = self.find(node).filter(|peer| peer.standing().is_some());
        let peer = peer.ok_or(Discarded::Sender)?;
        let address = peer.address();
        if !address.is_source(source, source_qpn) {
            return Err(Discarded::Address);
        }
        if !peer.accept(sequence) {
            return Err(Discarded::Repeated);
        }
        Ok(address)
    }

    /// Returns the number of the next datagram to a node. One that is not registered has no count:
    /// then it is the clock, as for the first one to a peer.
    pub fn next_sequence(&mut self, node: Option<NodeId>, now_us: u64) -> u64 {
        let peer = node.and_then(|node| self.find(node));
        peer.map_or(now_us.saturating_add(1), Peer::next_sequence)
    }
}
