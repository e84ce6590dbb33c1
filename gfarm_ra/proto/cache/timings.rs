// SPDX-License-Identifier: GPL-2.0

//! The peers that a node has asked: how long each takes to answer, and how many requests are under
//! way there.

use core::ops::DerefMut;

use super::{
    address::NodeId,
    admission::Credits,
    excluded::EXCLUDED_MAX,
    owner::mixed,
    requester::event::Heard,
    rtt::{
        Rtt,
        Timing, //
    }, //
};

/// The number of peers that are remembered at most: of all that a node may know.
pub const PLACES: usize = super::members::PEERS_MAX;

/// The number of places in which a peer has its own.
const WAYS: usize = 8;

/// The number of peers that are remembered as those that were lost last.
const LOST_MAX: usize = 2 * EXCLUDED_MAX;

/// A peer that was asked.
#[derive(Clone, Copy, Debug)]
pub struct PeerTiming {
    node: NodeId,
    rtt: Rtt,
    credits: Credits,
    /// The turn in which it was asked last.
    turn: u64,
}

/// The peers, in memory that the caller has. One of them is found by its number, without a look at
/// more than [`WAYS`] others.
#[derive(Debug)]
pub struct Timings<S> {
    places: S,
    turn: u64,
    lost: [Option<NodeId>; LOST_MAX],
}

impl<S: DerefMut<Target = [Option<PeerTiming>]>> Timings<S> {
    /// Takes places, which are free.
    pub const fn new(places: S) -> Self {
        Self {
            places,
            turn: 0,
            lost: [None; LOST_MAX],
        }
    }

    /// Returns the range of the places among which a peer has its own.
    fn range(&self, node: NodeId) -> core::ops::Range<usize> {
        let sets = self.places.len().div_ceil(WAYS) as u64;
        // CAST: Below the number of places.
        let set = mixed(node.get()).checked_rem(sets).unwrap_or(0) as usize;
        let begin = set.saturating_mul(WAYS);
        begin..begin.saturating_add(WAYS).min(self.places.len())
    }

    fn get(&self, node: NodeId) -> Option<&PeerTiming> {
        let mut peers = self.places.get(self.range(node))?.iter().flatten();
        peers.find(|peer| peer.node == node)
    }

    fn get_mut(&mut self, node: NodeId) -> Option<&mut PeerTiming> {
        let range = self.range(node);
        let mut peers = self.places.get_mut(range)?.iter_mut().flatten();
        peers.find(|peer| peer.node == node)
    }

    /// Finds a peer, or gives it a place: a free one, else that of the one that was asked longest
    /// ago among those that owe nothing and were not silent, else among all.
    fn enter(&mut self, node: NodeId) -> Option<&mut PeerTiming> {
        let range = self.range(node);
        let places = self.places.get_mut(range)?;
        let place = places.iter_mut().max_by_key(|place| match place {
            Some(peer) => {
                let is_good = peer.credits.is_idle() && !peer.rtt.is_silent();
                let age = u64::MAX.wrapping_sub(peer.turn);
                (peer.node == node, false, is_good, age)
            }
            None => (false, true, true, 0),
        })?;
        if place.is_none_or(|peer| peer.node != node) {
            *place = None;
        }
        Some(place.get_or_insert(PeerTiming {
            node,
            rtt: Rtt::NEW,
            credits: Credits::NEW,
            turn: 0,
        }))
    }

    /// Counts a request to a peer, and returns how long to wait for its answer, `timeout_us_max` at
    /// most; `None` if the peer has no credit left.
    pub fn take(&mut self, node: NodeId, timeout_us_max: u32) -> Option<Timing> {
        self.turn = self.turn.saturating_add(1);
        let turn = self.turn;
        let peer = self.enter(node)?;
        peer.turn = turn;
        let timing = peer.rtt.timing_within(timeout_us_max);
        peer.credits.take().then_some(timing)
    }

    /// Returns the credit of a request that has ended.
    pub fn give_back(&mut self, node: NodeId) {
        if let Some(peer) = self.get_mut(node) {
            peer.credits.give_back();
        }
    }

    /// Notes the number of requests that a peer serves at a time.
    pub fn granted(&mut self, node: NodeId, credits: u16) {
        if let Some(peer) = self.get_mut(node) {
            peer.credits.granted(credits);
        }
    }

    /// Notes the answer to a request, or that there was none.
    pub fn heard(&mut self, node: NodeId, heard: Heard, now_us: u64) {
        let Some(peer) = self.get_mut(node) else {
            return;
        };
        match heard {
            Heard::Answer { rtt_us } => peer.rtt.answered(rtt_us),
            Heard::Silence => peer.rtt.silent(now_us),
            Heard::Kept => peer.rtt.kept(now_us),
        }
        if peer.rtt.is_lost(now_us) && !self.lost.contains(&Some(node)) {
            let place = self
                .lost
                .iter()
                .position(|lost| !self.is_lost(*lost, now_us));
            let end = place.unwrap_or(LOST_MAX.wrapping_sub(1));
            if let Some(lost) = self.lost.get_mut(..=end) {
                lost.rotate_right(1);
            }
            let [first, ..] = &mut self.lost;
            *first = Some(node);
        }
    }

    fn is_lost(&self, node: Option<NodeId>, now_us: u64) -> bool {
        let peer = node.and_then(|node| self.get(node));
        peer.is_some_and(|peer| peer.rtt.is_lost(now_us))
    }

    /// Returns the peers that a new read does not ask: see [`Rtt::is_lost`].
    pub fn lost(&self, now_us: u64) -> [Option<NodeId>; EXCLUDED_MAX] {
        let mut lost = self.lost.iter().filter(|l| self.is_lost(**l, now_us));
        [(); EXCLUDED_MAX].map(|()| lost.next().copied().flatten())
    }
}
