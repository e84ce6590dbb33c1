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
//! only after it has answered a probe, or after a member that had its answer has told of it.

mod exchange;

use core::ops::DerefMut;

use ferro_proto::errno::Errno;

use super::{
    address::{
        Address,
        NodeId,
        Port, //
    },
    count,
    owner::{
        self,
        ChunkKey,
        OwnerSearch,
        Owners, //
    },
    peer::{
        Claim,
        Peer,
        Record,
        Standing, //
    },
    responder::Discarded,
};

/// The maximum number of peers.
pub const PEERS_MAX: usize = 4096;

/// The time between two probes of members that nothing is wrong with, in microseconds.
pub const ROUND_US: u64 = 1_000_000;

/// The time for which a new node makes itself known to each that it is told of, in microseconds.
const GREET_US: u64 = 10_000_000;

/// The number of nodes that are told when a node leaves.
const TOLD_AT_END: u8 = 8;

/// Why what a node has sent is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// The datagram came from another place than the one that it names as its own.
    Source,
    /// It has the number of the receiver.
    Own,
    /// The table is full.
    Full,
    /// It answers no probe.
    Unasked,
}

/// A `Hello` to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'b> {
    /// Where to.
    pub to: Address,
    /// To which node, if that is known.
    pub node: Option<NodeId>,
    /// The body.
    pub body: &'b [u8],
}

/// The members, in memory that the caller has: a place for each of at most [`PEERS_MAX`] peers.
#[derive(Debug)]
pub struct Members<S> {
    me: Record,
    places: S,
    /// Where the next round looks for a peer to probe.
    turn: usize,
    /// Where the next search for news begins.
    news_from: usize,
    round_us: u64,
    /// Where the list of the members goes on that is read at first; `None` when it is read.
    join: Option<u16>,
    /// When it greets the next node, and until when it does.
    greet_us: u64,
    greet_end_us: u64,
    leaving: u8,
}

impl<S: DerefMut<Target = [Option<Peer>]>> Members<S> {
    /// Creates a table without peers. `random` spreads the rounds of nodes that start together.
    pub fn new(
        me: NodeId,
        address: Address,
        boot: u32,
        places: S,
        now_us: u64,
        random: u32,
    ) -> Self {
        let delay_us = u64::from(random) % ROUND_US;
        Self {
            me: Record {
                node: me,
                address,
                boot,
                claim: Claim::FIRST,
            },
            places,
            turn: 0,
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
        self.places.iter().flatten()
    }

    fn find(&mut self, is_it: impl Fn(&Peer) -> bool) -> Option<&mut Peer> {
        self.places.iter_mut().flatten().find(|peer| is_it(peer))
    }

    /// Returns a peer by its number.
    pub fn get(&self, node: NodeId) -> Option<&Peer> {
        self.peers().find(|peer| peer.node() == Some(node))
    }

    /// Returns whether a node is this one, or one that answers.
    pub fn is_live(&self, node: NodeId) -> bool {
        node == self.me.node || self.get(node).is_some_and(Peer::is_live)
    }

    /// Returns the owners of a chunk for a requester, among this node and the live ones without
    /// those that are excluded.
    pub fn owners(
        &self,
        chunk: ChunkKey,
        requester: NodeId,
        is_excluded: impl Fn(NodeId) -> bool,
    ) -> Owners {
        let live = self.peers().filter(|peer| peer.is_live());
        let live = live.filter_map(Peer::node);
        let groups = owner::groups(count(live.clone()).saturating_add(1));
        let mut search = OwnerSearch::new(chunk, requester, groups);
        search.offer(self.me.node);
        for node in live.filter(|node| !is_excluded(*node)) {
            search.offer(node);
        }
        search.owners().unwrap_or(Owners {
            near: self.me.node,
            root: self.me.node,
        })
    }

    /// Returns how often a change is told: enough for it to reach all nodes.
    fn news(&self) -> u8 {
        // CAST: At most 64 bits.
        let bits = usize::BITS.wrapping_sub(self.places.len().leading_zeros()) as u8;
        bits.saturating_mul(2).saturating_add(3)
    }

    /// Returns a free place, or that of a node that is gone.
    fn vacancy(&mut self) -> Option<&mut Option<Peer>> {
        let free = self.places.iter().position(Option::is_none);
        let gone = || {
            let mut peers = self.places.iter();
            peers.position(|place| place.as_ref().is_some_and(Peer::is_replaceable))
        };
        let place = free.or_else(gone)?;
        self.places.get_mut(place)
    }

    /// Registers a peer by hand. What is registered already changes only its key and service level.
    ///
    /// `EFBIG` if there is no place, `EINVAL` if it is this node.
    pub fn add(&mut self, address: Address, now_us: u64) -> Result<(), Errno> {
        if self.me.address.is_same_place(&address) {
            return Err(Errno::EINVAL);
        }
        if let Some(peer) = self.find(|peer| peer.address().is_same_place(&address)) {
            peer.set_by_hand(address, now_us);
            return Ok(());
        }
        let place = self.vacancy().ok_or(Errno::EFBIG)?;
        *place = Some(Peer::by_hand(address, now_us));
        Ok(())
    }

    /// Forgets a peer. If it lives and other members know it, it will be learned again.
    ///
    /// `ENOENT` if it is not known.
    pub fn remove(&mut self, address: Address) -> Result<(), Errno> {
        let is_it = |peer: &Peer| peer.address().is_same_place(&address);
        let mut places = self.places.iter_mut();
        let place = places.find(|place| place.as_ref().is_some_and(is_it));
        *place.ok_or(Errno::ENOENT)? = None;
        Ok(())
    }

    /// Leaves: [`poll`](Self::poll) tells some members, who tell the others. Nothing is probed or
    /// answered any more.
    pub fn leave(&mut self) {
        self.me.claim.standing = Standing::Left;
        self.leaving = TOLD_AT_END;
    }

    fn has_left(&self) -> bool {
        self.me.claim.standing == Standing::Left
    }

    /// A request to a node was not answered: it is probed at once.
    pub fn unanswered(&mut self, node: NodeId, now_us: u64) {
        if let Some(peer) = self.find(|peer| peer.node() == Some(node)) {
            peer.check(now_us);
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
        let is_member = |peer: &Peer| peer.node() == Some(node) && peer.standing().is_some();
        let peer = self.find(is_member).ok_or(Discarded::Sender)?;
        let address = peer.address();
        if !address.is_source(source, source_qpn) {
            return Err(Discarded::Address);
        }
        if !peer.accept(sequence) {
            return Err(Discarded::Repeated);
        }
        Ok(address)
    }

    /// Has a `Hello` sent to a node that does not know this one yet, if there is such a node. The
    /// caller polls, before it sends its first request to that node.
    pub fn introduce(&mut self, node: NodeId, now_us: u64) {
        let is_stranger = |peer: &Peer| peer.node() == Some(node) && !peer.is_met();
        if let Some(peer) = self.find(is_stranger) {
            peer.check(now_us);
        }
    }

    /// Returns the number of the next datagram to a node. One that is not registered has no count:
    /// then it is the clock, as for the first one to a peer.
    pub fn next_sequence(&mut self, node: Option<NodeId>, now_us: u64) -> u64 {
        let peer = self.find(|peer| node.is_some() && peer.node() == node);
        peer.map_or(now_us.saturating_add(1), Peer::next_sequence)
    }
}
