// SPDX-License-Identifier: GPL-2.0

//! The messages that members send each other, and what they take from them.

use core::ops::DerefMut;

use super::{
    super::{
        address::{
            NodeId,
            Port, //
        },
        count,
        gossip::{
            Gossip,
            GossipWriter,
            BODY_LEN_MAX, //
        },
        peer::{
            Claim,
            Due,
            Peer,
            Record,
            Standing, //
        },
    },
    Ignored,
    Members,
    Outgoing,
    PeerPlace,
    GREET_US,
    ROUND_US, //
};

/// The maximum number of changes in one datagram; the rest is of the list.
const NEWS_MAX: usize = 12;

/// The time between two of these, in microseconds: all of them answer, and the public queue pair
/// has few receives.
const GREET_PAUSE_US: u64 = 100;

/// The time after which it looks again if there was none, in microseconds.
const GREET_IDLE_US: u64 = 20_000;

impl<S: DerefMut<Target = [PeerPlace]>> Members<S> {
    /// Returns when [`poll`](Self::poll) has something to do next.
    pub fn due_us(&self) -> u64 {
        if self.has_left() {
            return if self.leaving == 0 { u64::MAX } else { 0 };
        }
        let due_us = self.table.quiet_us();
        due_us.min(self.round_us).min(self.greet_us)
    }

    /// Does what is due, and returns a `Hello` to send, if there is one: call it again until there
    /// is none.
    pub fn poll<'b>(
        &mut self,
        now_us: u64,
        random: u64,
        out: &'b mut [u8; BODY_LEN_MAX],
    ) -> Option<Outgoing<'b>> {
        if self.has_left() {
            return self.tell_leaving(random, out);
        }
        if now_us >= self.round_us {
            self.round_us = now_us.saturating_add(ROUND_US);
            self.next_turn(now_us, Peer::is_live);
        }
        if now_us >= self.greet_us {
            self.greet(now_us);
        }
        let to = self.due(now_us)?;
        self.greeting(to, now_us, random, out)
    }

    /// Does what is due to peers, up to the first one that is to be probed. Returns its place.
    fn due(&mut self, now_us: u64) -> Option<usize> {
        if now_us < self.table.quiet_us() {
            return None;
        }
        let news = self.news();
        // From the next one on: each has its turn, even if they are due faster than they are sent.
        let is_due = |peer: &Peer| peer.due_us() <= now_us;
        let mut next = self.next_probe;
        // None is due more than twice.
        for _ in 0..self.table.end().saturating_mul(2) {
            let Some(index) = self.table.find(next, is_due) else {
                break;
            };
            let peer = self.table.get_mut(index)?;
            match peer.due(news, now_us) {
                Due::Nothing => {}
                Due::Changed => self.table.changed(),
                Due::Forget => self.table.set(index, None),
                Due::Probe => {
                    self.next_probe = index.saturating_add(1);
                    return Some(index);
                }
            }
            next = index.saturating_add(1);
        }
        self.table.looked_at();
        None
    }

    /// Returns a `Hello` to a node that does not know this one yet, if there is such a node: it is
    /// to be sent before the first request to it. What is due to others can wait, and so their
    /// addresses, which may have to be looked up, keep no request waiting.
    pub fn introduce<'b>(
        &mut self,
        node: NodeId,
        now_us: u64,
        random: u64,
        out: &'b mut [u8; BODY_LEN_MAX],
    ) -> Option<Outgoing<'b>> {
        if !self.is_stranger(node) {
            return None;
        }
        let index = self.table.of_node(node)?;
        self.greeting(index, now_us, random, out)
    }

    /// Returns whether a node does not know this one yet, so that [`introduce`](Self::introduce)
    /// has something to send.
    pub fn is_stranger(&self, node: NodeId) -> bool {
        let index = self.table.of_node(node);
        let peer = index.and_then(|index| self.table.get(index));
        peer.is_some_and(|peer| !peer.is_met())
    }

    /// Notes that a peer is probed; returns the `Hello` to it.
    fn greeting<'b>(
        &mut self,
        index: usize,
        now_us: u64,
        random: u64,
        out: &'b mut [u8; BODY_LEN_MAX],
    ) -> Option<Outgoing<'b>> {
        // CAST: Two halves of the number.
        let (nonce, place) = ((random >> 32) as u32, random as u32 as usize);
        let peer = self.table.get_mut(index)?;
        let to = peer.addressee();
        let nonce = peer.probed(nonce, now_us);
        let (address, node) = (peer.address(), peer.node());
        let is_lost = matches!(peer.standing(), Some(Standing::Suspect | Standing::Dead));
        // CAST: At most `PEERS_MAX`.
        let anywhere = place.checked_rem(self.table.len()).unwrap_or(0) as u16;
        let cursor = self.join.unwrap_or(anywhere);
        let writer = GossipWriter::new(out, nonce, self.me);
        let (writer, _) = self.tell(writer, node, anywhere);
        Some(Outgoing {
            to: address,
            node: to,
            is_lost,
            body: writer.finish(cursor),
        })
    }

    /// Finds a peer that does not know this node yet, while this one is new.
    fn greet(&mut self, now_us: u64) {
        if now_us >= self.greet_end_us {
            self.greet_us = u64::MAX;
            return;
        }
        let is_it = |peer: &Peer| peer.is_live() && !peer.is_met() && !peer.is_probed();
        let found = self.table.find(0, is_it);
        let pause_us = match found.and_then(|index| self.table.get_mut(index)) {
            Some(peer) => {
                peer.check(now_us);
                GREET_PAUSE_US
            }
            None => GREET_IDLE_US,
        };
        self.greet_us = now_us.saturating_add(pause_us);
    }

    /// Finds the peer whose turn it is to be probed.
    pub(super) fn next_turn(&mut self, now_us: u64, is_it: impl Fn(&Peer) -> bool) {
        let begin = self.turn.checked_rem(self.table.end()).unwrap_or(0);
        let found = self.table.find(begin, is_it);
        let Some((index, peer)) = found.and_then(|i| Some((i, self.table.get_mut(i)?))) else {
            return;
        };
        peer.check(now_us);
        self.turn = index.wrapping_add(1);
    }

    fn tell_leaving<'b>(
        &mut self,
        random: u64,
        out: &'b mut [u8; BODY_LEN_MAX],
    ) -> Option<Outgoing<'b>> {
        self.leaving = self.leaving.checked_sub(1)?;
        let live = count(self.peers().filter(|peer| peer.is_live())) as u64;
        // CAST: Below the number of peers.
        let nth = random.checked_rem(live)? as usize;
        let peer = self.peers().filter(|peer| peer.is_live()).nth(nth)?;
        let writer = GossipWriter::new(out, 0, self.me);
        Some(Outgoing {
            to: peer.address(),
            node: peer.node(),
            is_lost: false,
            body: writer.finish(0),
        })
    }

    /// Writes what the receiver is told: what is believed of itself unless that is good, what has
    /// changed, and the list from `cursor` on. Returns where the list goes on; 0 at its end.
    fn tell<'b>(
        &mut self,
        mut writer: GossipWriter<'b>,
        to: Option<NodeId>,
        cursor: u16,
    ) -> (GossipWriter<'b>, u16) {
        let about = to.and_then(|node| self.get(node)).and_then(Peer::record);
        if let Some(record) = about.filter(|r| r.claim.standing != Standing::Alive) {
            writer.push(record);
        }
        let len = self.table.end();
        let mut told = 0usize;
        for step in 0..len {
            let index = self
                .news_from
                .wrapping_add(step)
                .checked_rem(len)
                .unwrap_or(0);
            let has_news = |peer: &Peer| peer.has_news() && peer.node() != to;
            if !self.table.get(index).is_some_and(has_news) {
                continue;
            }
            let Some(peer) = self.table.get_mut(index) else {
                continue;
            };
            if let Some(record) = peer.record() {
                writer.push(record);
                peer.told();
                told = told.wrapping_add(1);
            }
            if told == NEWS_MAX {
                self.news_from = index.wrapping_add(1);
                break;
            }
        }
        let mut next = usize::from(cursor);
        while !writer.is_full() {
            if next >= len {
                return (writer, 0);
            }
            let record = self.table.get(next).and_then(Peer::record);
            if let Some(record) = record.filter(|record| Some(record.node) != to) {
                writer.push(record);
            }
            next = next.wrapping_add(1);
        }
        (writer, u16::try_from(next).unwrap_or(0))
    }

    /// Takes a `Hello` that came from `source`, a port and a queue pair, and returns the body of
    /// the answer; `None` if none is owed.
    ///
    /// `number` is that of a datagram which names this node, so it is not older than this mount:
    /// its records count, once. One that names no node may be of any age. It counts for nothing:
    /// its sender is probed, if it is not known to live. A node that was forgotten is probed as
    /// well, as its numbers were forgotten with it.
    pub fn hello<'b>(
        &mut self,
        hello: &Gossip<'_>,
        source: (Port, u32),
        number: Option<u64>,
        now_us: u64,
        out: &'b mut [u8; BODY_LEN_MAX],
    ) -> Result<Option<&'b [u8]>, Ignored> {
        let sender = hello.sender();
        if !sender.address.is_source(source.0, source.1) {
            return Err(Ignored::Source);
        }
        if sender.node == self.me.node || self.me.address.is_same_place(&sender.address) {
            return Err(Ignored::Own);
        }
        if self.has_left() {
            return Ok(None);
        }
        match number {
            Some(number) if self.believes(sender.node, number)? => {
                self.greeted(hello, number, now_us)?;
            }
            _ => self.look_at(&sender, now_us)?,
        }
        if sender.claim.standing == Standing::Left {
            return Ok(None);
        }
        let writer = GossipWriter::new(out, hello.nonce(), self.me);
        let (writer, next) = self.tell(writer, Some(sender.node), hello.cursor());
        Ok(Some(writer.finish(next)))
    }

    /// Returns whether the records of a datagram count that names this node: it is the first one
    /// with its number.
    fn believes(&mut self, sender: NodeId, number: u64) -> Result<bool, Ignored> {
        let is_forgotten = self.table.may_have_forgotten(sender);
        let Some(peer) = self.find(sender) else {
            return Ok(!is_forgotten);
        };
        if !peer.accept(number) {
            return Err(Ignored::Repeated);
        }
        Ok(peer.standing().is_some() || !is_forgotten)
    }

    /// Takes the records of a `Hello`.
    fn greeted(&mut self, hello: &Gossip<'_>, number: u64, now_us: u64) -> Result<(), Ignored> {
        let sender = hello.sender();
        let is_new = self.get(sender.node).is_none();
        self.learn(&sender, true, now_us).ok_or(Ignored::Full)?;
        if is_new {
            self.replace(&sender, now_us);
        }
        if let Some(peer) = self.find(sender.node) {
            peer.met();
            if is_new {
                peer.accept(number);
            }
        }
        self.learn_all(hello, now_us);
        Ok(())
    }

    /// Probes the sender of a datagram that counts for nothing, unless it is known to live or is
    /// being probed.
    fn look_at(&mut self, sender: &Record, now_us: u64) -> Result<(), Ignored> {
        let there = self.table.of_node(sender.node);
        let there = there.or_else(|| self.table.at(&sender.address).next());
        let Some(index) = there else {
            return self.learn(sender, false, now_us).ok_or(Ignored::Full);
        };
        let peer = self.table.get_mut(index);
        if let Some(peer) = peer.filter(|peer| !peer.is_live() && !peer.is_probed()) {
            peer.check(now_us);
        }
        Ok(())
    }

    /// Takes the mounts for dead in whose place a new one is.
    fn replace(&mut self, new: &Record, now_us: u64) {
        let (news, mut next) = (self.news(), 0);
        while let Some(index) = self.table.find(next, |peer| peer.is_replaced_by(new)) {
            if index < next {
                break;
            }
            let peer = self.table.get_mut(index);
            if peer.is_some_and(|peer| peer.declare_dead(news, now_us)) {
                self.table.changed();
            }
            next = index.saturating_add(1);
        }
    }

    /// Takes the answer to a `Hello`.
    pub fn members(&mut self, answer: &Gossip<'_>, now_us: u64) -> Result<(), Ignored> {
        let (news, sender) = (self.news(), answer.sender());
        let nonce = answer.nonce();
        let mut there = self.table.at(&sender.address);
        let asked = there.find(|index| self.table.get(*index).is_some_and(|p| p.awaits(nonce)));
        drop(there);
        let index = asked.ok_or(Ignored::Unasked)?;
        let answered = self.table.change(index, |place| {
            let peer = place.as_mut();
            peer.is_some_and(|peer| peer.answered(&sender, nonce, news, now_us))
        });
        if answered != Some(true) {
            return Err(Ignored::Unasked);
        }
        // The member that joins reads the list to its end, from this node.
        let is_new = self.join.is_some();
        let goes_on = is_new && answer.cursor() != 0;
        self.join = self.join.and(goes_on.then_some(answer.cursor()));
        if is_new && !goes_on {
            // From now on: the first node may have been registered late, or its answers were lost.
            self.greet_us = self.greet_us.min(now_us.saturating_add(GREET_PAUSE_US));
            self.greet_end_us = now_us.saturating_add(GREET_US);
        }
        if let Some(peer) = self.table.get_mut(index).filter(|_| goes_on) {
            peer.check(now_us);
        }
        self.replace(&sender, now_us);
        self.unite(sender.node);
        self.learn_all(answer, now_us);
        Ok(())
    }

    /// Leaves one place to a node that was registered by hand, and told of under its number.
    fn unite(&mut self, node: NodeId) {
        let Some(first) = self.table.all_of(node).min() else {
            return;
        };
        loop {
            let other = self.table.all_of(node).find(|index| *index != first);
            let Some(other) = other else {
                return;
            };
            let united = self.table.get(other).copied();
            self.table.set(other, None);
            if let (Some(peer), Some(other)) = (self.table.get_mut(first), united) {
                peer.unite(&other);
            }
        }
    }

    fn learn_all(&mut self, gossip: &Gossip<'_>, now_us: u64) {
        for record in gossip.records() {
            // A node that has no place is told of again, or is found when another has gone.
            let _ = self.learn(&record, true, now_us);
        }
    }

    /// Takes what is told of a node; `None` if there is no place for it.
    fn learn(&mut self, record: &Record, is_vouched: bool, now_us: u64) -> Option<()> {
        let news = self.news();
        if record.node == self.me.node {
            self.contradict(record.claim);
            return Some(());
        }
        if self.me.address.is_same_place(&record.address) {
            // Of the mount that had this queue pair before.
            return Some(());
        }
        let is_nameless =
            |index: &usize| self.table.get(*index).is_some_and(|p| p.node().is_none());
        let nameless = || self.table.at(&record.address).find(is_nameless);
        let known = self.table.of_node(record.node).or_else(nameless);
        if let Some(index) = known {
            let learn = |peer: &mut Peer| peer.learn(record, is_vouched, news, now_us);
            self.table.change(index, |place| place.as_mut().map(learn));
            return Some(());
        }
        if record.claim.standing >= Standing::Dead {
            // Not known, and not to be known any more.
            return Some(());
        }
        let index = self.vacancy()?;
        let peer = Peer::heard_of(record, !is_vouched, news, now_us);
        self.table.set(index, Some(peer));
        Some(())
    }

    /// Contradicts what others believe of this node.
    fn contradict(&mut self, claim: Claim) {
        if claim > self.me.claim && !self.has_left() {
            self.me.claim.incarnation = claim.incarnation.saturating_add(1);
        }
    }
}
