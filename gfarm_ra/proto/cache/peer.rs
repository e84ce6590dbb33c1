// SPDX-License-Identifier: GPL-2.0

//! The knowledge of a node about one other node.
//!
//! Nodes tell one another what they believe of the others, as in SWIM (Das, Gupta, Motivala, 2002):
//! of two claims about a node the newer one holds, at every node, in any order in which they
//! come. A node that is told that it is suspected answers with a newer claim, which only it can
//! make.

use super::{
    address::{
        Address,
        Group,
        NodeId, //
    },
    series::{
        Series,
        PROBE_TIMEOUT_US, //
    },
    window::ReplayWindow,
};

/// Milliseconds in the microseconds that all times here are counted in.
const MS: u64 = 1_000;

/// The number of probes without an answer after which a node is suspected. At a loss of 5 % of all
/// datagrams one series of probes in 10,000 finds none.
pub const PROBES_MAX: u8 = 4;

/// The time that a suspected node has to contradict, in microseconds.
pub const SUSPECT_US: u64 = 5_000 * MS;

/// The pause after which a dead node is probed again, in microseconds; it doubles.
pub const DEAD_PAUSE_US: u64 = 1_000 * MS;

/// The number of doublings of the pause: to about a minute.
const DOUBLINGS_MAX: u8 = 6;

/// The time after which a dead node is forgotten, unless it was registered by hand, in
/// microseconds. Until then no node can bring it back that was not told that it is dead.
pub const FORGET_US: u64 = 600_000 * MS;

/// The state of a node, in the order in which claims of the same incarnation replace one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Standing {
    /// The node answers.
    Alive = 0,
    /// The node owes answers: it is neither asked nor an owner, until it contradicts.
    Suspect = 1,
    /// The node has not contradicted.
    Dead = 2,
    /// The node has said that it leaves.
    Left = 3,
}

impl Standing {
    /// Takes the number of a standing.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Alive),
            1 => Some(Self::Suspect),
            2 => Some(Self::Dead),
            3 => Some(Self::Left),
            _ => None,
        }
    }

    /// Returns the word that `ibaddr` shows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
            Self::Left => "left",
        }
    }
}

/// A claim about the state of a node. The larger of two claims is the newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// A number that only the node itself increases, to contradict.
    pub incarnation: u32,
    /// The claimed state.
    pub standing: Standing,
}

impl Claim {
    /// The first claim of a node about itself.
    pub const FIRST: Self = Self {
        incarnation: 0,
        standing: Standing::Alive,
    };

    /// Returns the claim that the node of this one is as `standing` says.
    const fn with(self, standing: Standing) -> Self {
        Self {
            incarnation: self.incarnation,
            standing,
        }
    }
}

/// The record that one node sends to another about a third one, or about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the node.
    pub node: NodeId,
    /// The address of its public queue pair.
    pub address: Address,
    /// A random number that all mounts of a machine have in common until it starts again.
    pub boot: u32,
    /// The claim about its state.
    pub claim: Claim,
    /// The part of the network that it is in, as it says itself.
    pub group: Group,
}

/// The next action for a peer whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing is due yet.
    Nothing,
    /// Send it a probe.
    Probe,
    /// The peer has changed, to suspected or dead.
    Changed,
    /// The peer can be forgotten.
    Forget,
}

/// A peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    address: Address,
    /// `None` until a peer that was registered by hand has answered.
    known: Option<Known>,
    is_by_hand: bool,
    /// The peer has answered, or has asked: so it knows this node.
    is_met: bool,
    /// The probes that are without an answer.
    series: Series,
    /// The number of series of probes that it has not answered since it is dead.
    misses: u8,
    /// The number of times that the claim is still to be told to others.
    news: u8,
    /// The time at which the next probe is due, in microseconds; `u64::MAX` if none is.
    probe_us: u64,
    /// The time since which the claim is believed, in microseconds.
    since_us: u64,
    /// The numbers of its datagrams.
    received: ReplayWindow,
    /// The number of the last datagram to it.
    sent: u64,
    /// The number of pages that have come from it.
    pages: u64,
}

/// The statements of a peer, or of others about it.
#[derive(Clone, Copy, Debug)]
struct Known {
    node: NodeId,
    boot: u32,
    claim: Claim,
    group: Group,
    /// Whether it was only heard of: neither has it answered a probe, nor has a member vouched for
    /// it.
    is_candidate: bool,
}

impl Peer {
    /// Registers a peer by hand: it is probed at once.
    pub const fn by_hand(address: Address, now_us: u64) -> Self {
        Self {
            address,
            known: None,
            is_by_hand: true,
            is_met: false,
            series: Series::NEW,
            misses: 0,
            news: 0,
            probe_us: now_us,
            since_us: now_us,
            received: ReplayWindow::NEW,
            sent: now_us,
            pages: 0,
        }
    }

    /// Registers a peer that a member vouches for, or that has asked itself (`is_candidate`), which
    /// has to answer a probe before it counts: what it sent may be old and sent again by another.
    pub const fn heard_of(record: &Record, is_candidate: bool, news: u8, now_us: u64) -> Self {
        Self {
            address: record.address,
            known: Some(Known {
                node: record.node,
                boot: record.boot,
                claim: record.claim,
                group: record.group,
                is_candidate,
            }),
            is_by_hand: false,
            is_met: false,
            series: Series::NEW,
            misses: 0,
            news,
            probe_us: if is_candidate { now_us } else { u64::MAX },
            since_us: now_us,
            received: ReplayWindow::NEW,
            sent: now_us,
            pages: 0,
        }
    }

    /// Counts pages that have come from it.
    pub fn gave(&mut self, pages: u64) {
        self.pages = self.pages.saturating_add(pages);
    }

    /// Returns the number of pages that have come from it.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns whether it knows this node: what one sends to a stranger is ignored.
    pub const fn is_met(&self) -> bool {
        self.is_met
    }

    /// Returns whether a probe is without an answer.
    pub const fn is_probed(&self) -> bool {
        self.series.sent() != 0
    }

    /// Notes that it has sent a `Hello`.
    pub fn met(&mut self) {
        self.is_met = true;
    }

    /// Notes that this node has another address, which the peer does not know yet.
    pub fn estranged(&mut self) {
        self.is_met = false;
    }

    /// Takes the number of a datagram from it; returns whether it is new.
    pub fn accept(&mut self, sequence: u64) -> bool {
        self.received.accept(sequence)
    }

    /// Returns the number of the next datagram to it. The count begins at the clock, so it goes on
    /// even if this node has forgotten the peer meanwhile, and the peer not this node.
    pub fn next_sequence(&mut self) -> u64 {
        self.sent = self.sent.saturating_add(1);
        self.sent
    }

    /// Returns where it is.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Returns which node it is, if that is known.
    pub fn node(&self) -> Option<NodeId> {
        self.known.map(|known| known.node)
    }

    /// Returns the part of the network that it is in, if that is known.
    pub fn group(&self) -> Option<Group> {
        self.known.map(|known| known.group)
    }

    /// Returns whether it was registered by hand.
    pub const fn is_by_hand(&self) -> bool {
        self.is_by_hand
    }

    /// Notes that it was registered by hand, with a key and a service level.
    pub fn set_by_hand(&mut self, address: Address, now_us: u64) {
        (self.address, self.is_by_hand) = (address, true);
        if !self.is_live() {
            self.misses = 0;
            self.probe_us = now_us;
        }
    }

    /// Takes what another entry of the same node has: whether it was registered by hand, and the
    /// numbers of datagrams.
    pub fn unite(&mut self, other: &Self) {
        self.is_by_hand |= other.is_by_hand;
        self.received = self.received.newer(other.received);
        self.sent = self.sent.max(other.sent);
    }

    /// Returns how it is; `None` if it has never answered.
    pub fn standing(&self) -> Option<Standing> {
        let known = self.known.filter(|known| !known.is_candidate)?;
        Some(known.claim.standing)
    }

    /// Returns whether it may be asked, and be an owner.
    pub fn is_live(&self) -> bool {
        self.standing() == Some(Standing::Alive)
    }

    /// Returns whether its place in the table may be given to another.
    pub fn is_replaceable(&self) -> bool {
        !self.is_by_hand
            && matches!(
                self.standing(),
                Some(Standing::Dead | Standing::Left) | None
            )
    }

    /// Returns what is told to others; `None` if only it can vouch for itself yet.
    pub fn record(&self) -> Option<Record> {
        let known = self.known.filter(|known| !known.is_candidate)?;
        Some(Record {
            node: known.node,
            address: self.address,
            boot: known.boot,
            claim: known.claim,
            group: known.group,
        })
    }

    /// Returns whether it has changed lately, and others are to be told.
    pub const fn has_news(&self) -> bool {
        self.news != 0
    }

    /// Notes that another was told.
    pub fn told(&mut self) {
        self.news = self.news.saturating_sub(1);
    }

    /// Returns whether the same machine had it before its last start, or the same queue pair is
    /// another node's now.
    pub fn is_replaced_by(&self, record: &Record) -> bool {
        let Some(known) = self.known else {
            return false;
        };
        let (old, new) = (&self.address, &record.address);
        let rebooted = old.port() == new.port() && known.boot != record.boot;
        known.node != record.node && (rebooted || old.is_same_place(new))
    }

    /// Takes a claim about the node: returns whether it is newer than what was known. The address
    /// goes with it, as a node that has another one makes a new claim.
    pub fn learn(&mut self, record: &Record, is_vouched: bool, news: u8, now_us: u64) -> bool {
        let Some(known) = self.known.as_mut().filter(|k| k.node == record.node) else {
            // Registered by hand, and another node or none was there before.
            let by_hand = self.is_by_hand;
            *self = Self::heard_of(record, !is_vouched, news, now_us);
            self.is_by_hand = by_hand;
            return is_vouched;
        };
        let was_candidate = known.is_candidate && is_vouched;
        known.is_candidate &= !is_vouched;
        if record.claim <= known.claim {
            self.news = if was_candidate { news } else { self.news };
            return was_candidate;
        }
        known.claim = record.claim;
        self.address = record.address;
        self.changed(news, now_us);
        true
    }

    /// Declares the node dead.
    pub fn declare_dead(&mut self, news: u8, now_us: u64) -> bool {
        self.set(Standing::Dead, news, now_us)
    }

    fn set(&mut self, standing: Standing, news: u8, now_us: u64) -> bool {
        let Some(known) = self.known.as_mut().filter(|k| k.claim.standing < standing) else {
            return false;
        };
        known.claim = known.claim.with(standing);
        self.changed(news, now_us);
        true
    }

    /// Starts what follows a new claim.
    fn changed(&mut self, news: u8, now_us: u64) {
        (self.news, self.since_us) = (news, now_us);
        self.probe_us = match self.standing() {
            // A probe tells it that it is suspected, and its answer contradicts.
            Some(Standing::Suspect) => now_us,
            Some(Standing::Dead) => now_us.saturating_add(DEAD_PAUSE_US),
            _ => u64::MAX,
        };
        self.series.end();
        self.misses = 0;
    }

    /// Asks for a probe at once, unless one is under way: it is this peer's turn, or a request to
    /// it was not answered.
    pub fn check(&mut self, now_us: u64) {
        self.probe_us = self.probe_us.min(now_us);
    }

    /// Returns the node that the next probe is for. Every second one to a peer that does not live
    /// names none: another mount may have the queue pair by now, and takes no message
    /// for the last one.
    pub fn addressee(&self) -> Option<NodeId> {
        let is_named = self.is_live() || self.series.sent() & 1 == 0;
        self.node().filter(|_| is_named)
    }

    /// Notes that a probe is sent. Returns the number that its answer has to repeat: `random` if
    /// it is the first one of a series.
    pub fn probed(&mut self, random: u32, now_us: u64) -> u32 {
        let (nonce, due_us) = self.series.send(random, self.standing().is_none(), now_us);
        self.probe_us = due_us;
        nonce
    }

    /// Returns whether an answer with this number is to one of its probes.
    pub fn awaits(&self, nonce: u32) -> bool {
        self.series.find(nonce).is_some()
    }

    /// Takes the answer to a probe; returns whether it is one. It was sent after the probe, so
    /// what it says is not older.
    pub fn answered(&mut self, record: &Record, nonce: u32, news: u8, now_us: u64) -> bool {
        let Some(probe) = self.series.find(nonce) else {
            return false;
        };
        if !self.address.is_same_place(&record.address) {
            return false;
        }
        let mut series = self.series;
        series.answered(probe, self.standing().is_none(), now_us);
        self.learn(record, true, news, now_us);
        (self.address, self.is_met) = (record.address, true);
        (self.series, self.misses) = (series, 0);
        // Suspected, and has not contradicted yet: the next probe says it once more.
        let is_suspect = self.standing() == Some(Standing::Suspect);
        self.probe_us = if is_suspect {
            now_us.saturating_add(PROBE_TIMEOUT_US)
        } else {
            u64::MAX
        };
        true
    }

    /// Returns when something is due next.
    pub fn due_us(&self) -> u64 {
        let limit_us = match self.standing() {
            Some(Standing::Suspect) => self.since_us.saturating_add(SUSPECT_US),
            Some(Standing::Dead | Standing::Left) if !self.is_by_hand => {
                self.since_us.saturating_add(FORGET_US)
            }
            _ => u64::MAX,
        };
        self.probe_us.min(limit_us)
    }

    /// Decides what is due at `now_us`.
    pub fn due(&mut self, news: u8, now_us: u64) -> Due {
        let age_us = now_us.saturating_sub(self.since_us);
        match self.standing() {
            Some(Standing::Suspect) if age_us >= SUSPECT_US => {
                self.set(Standing::Dead, news, now_us);
                return Due::Changed;
            }
            Some(Standing::Dead | Standing::Left) if !self.is_by_hand && age_us >= FORGET_US => {
                return Due::Forget;
            }
            _ if self.probe_us > now_us => return Due::Nothing,
            _ if self.series.sent() < PROBES_MAX => return Due::Probe,
            _ => {}
        }
        self.series.end();
        match self.standing() {
            Some(Standing::Alive) => {
                self.set(Standing::Suspect, news, now_us);
                Due::Changed
            }
            // Until it contradicts or its time is over.
            Some(Standing::Suspect) => Due::Probe,
            // A candidate that does not answer was none.
            None if !self.is_by_hand => Due::Forget,
            _ => {
                self.misses = self.misses.saturating_add(1).min(DOUBLINGS_MAX);
                self.probe_us =
                    now_us.saturating_add(DEAD_PAUSE_US.wrapping_shl(self.misses.into()));
                Due::Nothing
            }
        }
    }
}
