// SPDX-License-Identifier: GPL-2.0

//! The places of peers, and how one is found: by its number, and by where it is.

use core::{
    mem,
    ops::DerefMut, //
};

use super::super::{
    address::{
        Address,
        NodeId, //
    },
    owner::mixed,
    peer::Peer, //
};
use super::forgotten::Forgotten;

/// No place: [`PEERS_MAX`](super::PEERS_MAX) is less.
const NONE: u16 = u16::MAX;

const _: () = assert!(super::PEERS_MAX < NONE as usize);

/// A place for a peer.
///
/// A place is also the head of two lists: of the peers whose numbers have the same remainder as
/// this place, and of those whose addresses have.
#[derive(Clone, Copy, Debug)]
pub struct PeerPlace {
    peer: Option<Peer>,
    /// The first ones of the lists of this place.
    heads: [u16; KEYS],
    /// The next ones in the lists in which the peer is.
    next: [u16; KEYS],
}

impl PeerPlace {
    /// A place without a peer.
    pub const EMPTY: Self = Self::of(None);

    /// A place with a peer, or without.
    pub const fn of(peer: Option<Peer>) -> Self {
        Self {
            peer,
            heads: [NONE; KEYS],
            next: [NONE; KEYS],
        }
    }
}

/// The properties by which a peer is found: its number, if that is known, and its address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Node = 0,
    Address = 1,
}

const KEYS: usize = 2;

fn hash_of_address(address: &Address) -> u64 {
    mixed(address.port().hash() ^ u64::from(address.qpn()))
}

impl By {
    const ALL: [Self; KEYS] = [Self::Node, Self::Address];

    /// Returns what a peer is found by; `None` if it is not.
    fn hash_of(self, peer: &Peer) -> Option<u64> {
        match self {
            Self::Node => peer.node().map(|node| mixed(node.get())),
            Self::Address => Some(hash_of_address(&peer.address())),
        }
    }

    /// Returns one of the two numbers.
    const fn of(self, [node, address]: [u16; KEYS]) -> u16 {
        match self {
            Self::Node => node,
            Self::Address => address,
        }
    }

    fn of_mut(self, [node, address]: &mut [u16; KEYS]) -> &mut u16 {
        match self {
            Self::Node => node,
            Self::Address => address,
        }
    }
}

/// The places.
#[derive(Debug)]
pub(super) struct Table<S> {
    places: S,
    /// The places from here on have never had a peer.
    end: usize,
    /// The number of times that the set of living nodes has changed, and one more.
    changes: u64,
    /// Nothing is due to a peer before this time, in microseconds, but to those of `touched`.
    quiet_us: u64,
    /// The places whose peers may have been changed since. What is due next is told after each
    /// message, and of thousands of peers it changes one or two.
    touched: [u16; TOUCHED],
    forgotten: Forgotten,
}

/// The number of places that are noted as touched.
const TOUCHED: usize = 4;

impl<S: DerefMut<Target = [PeerPlace]>> Table<S> {
    /// Takes places, with the peers that are there.
    pub(super) fn new(places: S) -> Self {
        let mut this = Self {
            places,
            end: 0,
            changes: 1,
            quiet_us: 0,
            touched: [NONE; TOUCHED],
            forgotten: Forgotten::NONE,
        };
        for (index, place) in this.places.iter_mut().enumerate() {
            *place = PeerPlace::of(place.peer);
            if place.peer.is_some() {
                this.end = index.saturating_add(1);
            }
        }
        for index in 0..this.places.len() {
            By::ALL.into_iter().for_each(|by| this.link(by, index));
        }
        this
    }

    /// Returns the number of places.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of places behind which none has ever had a peer.
    pub(super) const fn end(&self) -> usize {
        self.end
    }

    /// Returns all peers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> + Clone {
        let places = self.places.iter().take(self.end);
        places.filter_map(|place| place.peer.as_ref())
    }

    /// Returns a number that grows with each change among the nodes that live.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes note that a peer of [`get_mut`](Self::get_mut) lives, or does not live any more.
    pub(super) fn changed(&mut self) {
        self.changes = self.changes.saturating_add(1);
    }

    /// Returns whether a node may have been a member here that has lost its place since, and with
    /// it the numbers of its datagrams.
    pub(super) fn may_have_forgotten(&self, node: NodeId) -> bool {
        self.forgotten.may_have(node)
    }

    /// Returns a time before which nothing is due to a peer, in microseconds.
    pub(super) fn quiet_us(&self) -> u64 {
        let touched = self.touched.iter().map(|index| self.due_us(*index));
        touched.min().unwrap_or(u64::MAX).min(self.quiet_us)
    }

    /// Takes note that all peers were looked at, and tells [`quiet_us`](Self::quiet_us) what is due
    /// next.
    pub(super) fn looked_at(&mut self) {
        let due_us = self.iter().map(Peer::due_us).min();
        self.quiet_us = due_us.unwrap_or(u64::MAX);
        self.touched = [NONE; TOUCHED];
    }

    fn due_us(&self, index: u16) -> u64 {
        self.get(index.into()).map_or(u64::MAX, Peer::due_us)
    }

    /// Takes note that the peer of a place may be changed.
    fn touch(&mut self, index: usize) {
        let Ok(index) = u16::try_from(index) else {
            return;
        };
        if self.touched.contains(&index) {
            return;
        }
        self.touched.rotate_right(1);
        let [first, ..] = &mut self.touched;
        let oldest = mem::replace(first, index);
        self.quiet_us = self.quiet_us.min(self.due_us(oldest));
    }

    /// Returns all peers, to change what they are not found by, nor told to live by, and nothing
    /// is due to them by.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let places = self.places.iter_mut().take(self.end);
        places.filter_map(|place| place.peer.as_mut())
    }

    /// Returns the peer of a place.
    pub(super) fn get(&self, index: usize) -> Option<&Peer> {
        self.places.get(index)?.peer.as_ref()
    }

    /// Returns the peer of a place, to change what it is not found by. Who changes whether it
    /// lives says so by [`changed`](Self::changed).
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Peer> {
        self.touch(index);
        self.places.get_mut(index)?.peer.as_mut()
    }

    /// Returns the first place whose peer is as it says, from `begin` on and then from the first
    /// place on.
    pub(super) fn find(&self, begin: usize, is_it: impl Fn(&Peer) -> bool) -> Option<usize> {
        let begin = begin.min(self.end);
        let mut places = (begin..self.end).chain(0..begin);
        places.find(|index| self.get(*index).is_some_and(&is_it))
    }

    /// Returns where a node is.
    pub(super) fn of_node(&self, node: NodeId) -> Option<usize> {
        self.all_of(node).next()
    }

    /// Returns where a node is, under each address that it has.
    pub(super) fn all_of(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let is_it = move |peer: &Peer| peer.node() == Some(node);
        self.list(By::Node, mixed(node.get()), is_it)
    }

    /// Returns where the peers of an address are.
    pub(super) fn at(&self, address: &Address) -> impl Iterator<Item = usize> + '_ {
        let address = *address;
        let is_it = move |peer: &Peer| peer.address().is_same_place(&address);
        self.list(By::Address, hash_of_address(&address), is_it)
    }

    fn list<'a>(
        &'a self,
        by: By,
        hash: u64,
        is_it: impl Fn(&Peer) -> bool + 'a,
    ) -> impl Iterator<Item = usize> + 'a {
        let place = move |index: u16| self.places.get(usize::from(index));
        let head = self.head_of(hash).and_then(|head| self.places.get(head));
        let mut next = head.map_or(NONE, |place| by.of(place.heads));
        let all = core::iter::from_fn(move || {
            let at = next;
            next = place(at).map(|place| by.of(place.next))?;
            Some(usize::from(at))
        });
        all.filter(move |index| self.get(*index).is_some_and(&is_it))
    }

    /// Returns the place of the head of a list.
    fn head_of(&self, hash: u64) -> Option<usize> {
        // CAST: Below the number of places.
        hash.checked_rem(self.places.len() as u64)
            .map(|head| head as usize)
    }

    /// Returns the head of the list in which the peer of a place belongs.
    fn head_of_place(&self, by: By, index: usize) -> Option<usize> {
        self.head_of(by.hash_of(self.get(index)?)?)
    }

    /// Puts the peer of a place in front of its list.
    fn link(&mut self, by: By, index: usize) {
        let (Some(head), Ok(number)) = (self.head_of_place(by, index), u16::try_from(index)) else {
            return;
        };
        let Some(head) = self.places.get_mut(head) else {
            return;
        };
        let behind = mem::replace(by.of_mut(&mut head.heads), number);
        if let Some(place) = self.places.get_mut(index) {
            *by.of_mut(&mut place.next) = behind;
        }
    }

    /// Takes the peer of a place out of its list.
    fn unlink(&mut self, by: By, index: usize) {
        let (Some(head), Ok(number)) = (self.head_of_place(by, index), u16::try_from(index)) else {
            return;
        };
        let behind = self.places.get(index).map_or(NONE, |p| by.of(p.next));
        let Some(head) = self.places.get_mut(head) else {
            return;
        };
        let first = by.of_mut(&mut head.heads);
        let mut at = *first;
        if at == number {
            *first = behind;
            return;
        }
        while let Some(place) = self.places.get_mut(usize::from(at)) {
            let next = by.of_mut(&mut place.next);
            at = *next;
            if at == number {
                *next = behind;
                return;
            }
        }
    }

    /// Gives a place to a peer, or takes it from one.
    pub(super) fn set(&mut self, index: usize, peer: Option<Peer>) {
        self.change(index, |place| *place = peer);
    }

    /// Changes the peer of a place in any way. `None` if there is no such place.
    pub(super) fn change<R>(
        &mut self,
        index: usize,
        work: impl FnOnce(&mut Option<Peer>) -> R,
    ) -> Option<R> {
        self.touch(index);
        let mut peer = self.places.get(index)?.peer;
        let hashes = |peer: &Option<Peer>| By::ALL.map(|by| by.hash_of(peer.as_ref()?));
        let lives = |peer: &Option<Peer>| peer.as_ref().filter(|peer| peer.is_live())?.node();
        let (before, lived) = (hashes(&peer), lives(&peer));
        let member = peer.filter(|peer| peer.standing().is_some());
        let member = member.and_then(|member| member.node());
        let result = work(&mut peer);
        if let Some(node) = member.filter(|_| peer.and_then(|peer| peer.node()) != member) {
            self.forgotten.add(node);
        }
        let after = hashes(&peer);
        if lives(&peer) != lived {
            self.changed();
        }
        for ((by, before), after) in By::ALL.into_iter().zip(before).zip(after) {
            if before != after {
                self.unlink(by, index);
            }
        }
        self.places.get_mut(index)?.peer = peer;
        self.end = self.end.max(index.saturating_add(1));
        for ((by, before), after) in By::ALL.into_iter().zip(before).zip(after) {
            if before != after {
                self.link(by, index);
            }
        }
        Some(result)
    }
}
