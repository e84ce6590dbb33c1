// SPDX-License-Identifier: GPL-2.0

//! The table of members: nodes that tell each other of one another, over a network that loses.

mod joins;
mod moved;
mod owners;
mod replay;

use std::collections::HashSet;

use ferro_proto::errno::Errno;
use proto::gfarm::cache::{
    address::{
        Address,
        Group,
        NodeId,
        Port, //
    },
    directory::GROUP_LEN,
    gossip::{
        Gossip,
        GossipWriter,
        BODY_LEN_MAX, //
    },
    members::{
        Ignored,
        Members,
        PeerPlace, //
    },
    peer::{
        Claim,
        Record,
        Standing, //
    },
    responder::Discarded,
};

use super::address::{
    address,
    gid, //
};

/// The number of groups in which the nodes are in turn.
const GROUPS: u8 = 3;

type Table = Members<Vec<PeerPlace>>;

fn node(n: u8) -> NodeId {
    NodeId::new(1000 + u64::from(n)).unwrap()
}

fn record(n: u8, claim: Claim) -> Record {
    Record {
        node: node(n),
        address: address(n),
        boot: n.into(),
        claim,
        group: group(1),
    }
}

fn group(number: u8) -> Group {
    Group::new(number).unwrap()
}

fn table(n: u8, places: usize) -> Table {
    let places = vec![PeerPlace::EMPTY; places];
    let me = Record {
        group: group(n % GROUPS + 1),
        ..record(n, Claim::FIRST)
    };
    Members::new(me, places, 0, u32::from(n) * 7919)
}

/// Nodes with a clock that they have in common.
struct Net {
    nodes: Vec<Option<Table>>,
    now_us: u64,
    random: u64,
    /// The number of datagrams in a hundred that are lost.
    loss: u64,
    datagrams: u64,
    /// The nodes to which probes went whose address was to be looked up anew.
    looked_up: Vec<usize>,
}

impl Net {
    fn new(count: u8, loss: u64) -> Self {
        Self {
            nodes: (0..count).map(|n| Some(table(n, 100))).collect(),
            now_us: 0,
            random: 88172645463325252,
            loss,
            datagrams: 0,
            looked_up: Vec::new(),
        }
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn is_lost(&mut self) -> bool {
        self.datagrams += 1;
        self.draw() % 100 < self.loss
    }

    /// Lets time pass, in steps of a millisecond.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_us += 1_000;
            for from in 0..self.nodes.len() {
                self.poll(from);
            }
        }
    }

    fn poll(&mut self, from: usize) {
        loop {
            let (mut out, random, now_us) = ([0; BODY_LEN_MAX], self.draw(), self.now_us);
            let Some(sender) = &mut self.nodes[from] else {
                return;
            };
            if sender.due_us() > now_us {
                return;
            }
            let me = sender.me();
            let Some(hello) = sender.poll(now_us, random, &mut out) else {
                return;
            };
            let (to, names) = (usize::from(hello.to.gid()[15]), hello.node);
            let body = hello.body.to_vec();
            let number = names.map(|node| sender.next_sequence(Some(node), now_us));
            if hello.is_lost {
                self.looked_up.push(to);
            }
            if self.is_lost() {
                continue;
            }
            let mut out = [0; BODY_LEN_MAX];
            let Some(Some(receiver)) = self.nodes.get_mut(to) else {
                continue;
            };
            let (at, lid) = (receiver.me().address, hello.to.lid());
            let is_there = at.is_same_place(&hello.to) && at.lid() == lid;
            if !is_there || names.is_some_and(|node| node != receiver.me().node) {
                continue;
            }
            let hello = Gossip::parse(&body, me.node).unwrap();
            let source = (me.address.port(), me.address.qpn());
            let answer = receiver.hello(&hello, source, number, now_us, &mut out);
            let (answer, by) = (answer.unwrap().map(<[u8]>::to_vec), receiver.me().node);
            if let (Some(body), false) = (answer, self.is_lost()) {
                let answer = Gossip::parse(&body, by).unwrap();
                let sender = self.nodes[from].as_mut().unwrap();
                let _ = sender.members(&answer, now_us);
            }
        }
    }

    /// The nodes that each living node takes for living, as sorted numbers.
    fn views(&self) -> Vec<Vec<u64>> {
        let view = |table: &Table| {
            let live = table.peers().filter(|peer| peer.is_live());
            let live = live.filter_map(|peer| Some(peer.node()?.get()));
            let mut live: Vec<u64> = live.chain([table.me().node.get()]).collect();
            live.sort_unstable();
            live
        };
        self.nodes.iter().flatten().map(view).collect()
    }

    fn agrees(&self) -> bool {
        let living: Vec<u64> = self
            .nodes
            .iter()
            .flatten()
            .map(|t| t.me().node.get())
            .collect();
        self.views().iter().all(|view| *view == living)
    }

    /// Runs until all agree on who lives; returns the milliseconds.
    fn agree(&mut self, limit_ms: u64) -> u64 {
        for ms in (0..limit_ms).step_by(10) {
            if self.agrees() {
                return ms;
            }
            self.run(10);
        }
        panic!("no agreement after {limit_ms} ms: {:?}", self.views());
    }
}

/// All know the first node by hand, and nothing else.
fn joined(count: u8, loss: u64) -> Net {
    let mut net = Net::new(count, loss);
    for table in net.nodes.iter_mut().flatten().skip(1) {
        table.add(address(0), 0).unwrap();
    }
    net.agree(20_000);
    net
}

#[test]
fn the_tables_take_the_memory_that_is_written_down() {
    // Documentation/gfarm-cache-scale.md
    assert!(size_of::<PeerPlace>() <= 168, "{}", size_of::<PeerPlace>());
    assert_eq!(GROUP_LEN, 4608);
}

#[test]
fn nodes_find_each_other_through_one() {
    let mut net = joined(40, 0);
    assert!(net.now_us < 5_000_000, "{} us", net.now_us);
    // In peace each node sends a probe a second, and answers one.
    let before = net.datagrams;
    net.run(10_000);
    let each = (net.datagrams - before) / 40 / 10;
    assert!((2..=3).contains(&each), "{each} datagrams a second");
    assert!(net.agrees());
}

#[test]
fn loss_delays_and_suspects_nobody_for_long() {
    let mut net = joined(30, 5);
    net.run(60_000);
    net.agree(5_000);
}

#[test]
fn a_dead_node_is_noticed_by_all() {
    for loss in [0, 5] {
        let mut net = joined(30, loss);
        net.nodes[7] = None;
        let ms = net.agree(20_000);
        assert!(ms < 10_000, "{ms} ms");
        net.run(10_000);
        net.agree(5_000);
    }
}

#[test]
fn the_first_node_may_die_when_it_is_known() {
    let mut net = joined(10, 0);
    net.nodes[0] = None;
    net.agree(20_000);
}

#[test]
fn who_is_asked_in_vain_is_probed_at_once() {
    let mut net = joined(10, 0);
    // No other one's turn comes in what follows.
    net.run(100);
    net.nodes[7] = None;
    let now_us = net.now_us;
    net.nodes[3].as_mut().unwrap().unanswered(node(7), now_us);
    let is_live = |net: &Net| net.nodes[3].as_ref().unwrap().is_live(node(7));
    net.run(500);
    assert!(is_live(&net));
    net.run(150);
    assert!(!is_live(&net));
}

#[test]
fn who_leaves_is_gone_at_once() {
    let mut net = joined(20, 0);
    net.nodes[4].as_mut().unwrap().leave();
    net.run(10);
    net.nodes[4] = None;
    let ms = net.agree(10_000);
    assert!(ms < 4_000, "{ms} ms");
}

#[test]
fn a_remount_replaces_the_last_one() {
    let mut net = joined(10, 0);
    // The machine was restarted: another number, the same port, another queue pair.
    let place = Address::new(gid(5), 0, 99, 111, 0).unwrap();
    let me = Record {
        node: node(77),
        address: place,
        boot: 1234,
        ..record(5, Claim::FIRST)
    };
    let mut again = Members::new(me, vec![PeerPlace::EMPTY; 100], net.now_us, 1);
    again.add(address(0), net.now_us).unwrap();
    net.nodes[5] = Some(again);
    for turn in 0..100 {
        net.nodes
            .iter_mut()
            .flatten()
            .for_each(|table| owners::compare(table, turn));
        net.run(1);
    }
    let first = net.nodes[0].as_ref().unwrap();
    assert!(first.is_live(node(77)) && !first.is_live(node(5)));
}

#[test]
fn two_halves_find_each_other_again() {
    let mut net = joined(8, 0);
    // Node 7 hears nobody, and nobody hears it, until each takes the other for dead.
    let away = net.nodes[7].take();
    net.agree(20_000);
    net.nodes[7] = away;
    let ms = net.agree(40_000);
    assert!(ms < 30_000, "{ms} ms");
}

#[test]
fn a_foreign_source_is_not_believed() {
    let mut me = table(0, 10);
    let (mut hello, mut out) = ([0; BODY_LEN_MAX], [0; BODY_LEN_MAX]);
    let body = GossipWriter::new(&mut hello, 1, record(1, Claim::FIRST)).finish(0);
    let hello = Gossip::parse(body, node(1)).unwrap();
    let right = address(1).port();
    let wrong = Port::of_source(Some(gid(2)), 0).unwrap();
    for source in [(wrong, 17), (right, 18)] {
        let refused = me.hello(&hello, source, Some(5), 0, &mut out);
        assert_eq!(refused, Err(Ignored::Source));
    }
    // Without the number of this node it may be an old datagram: a probe has to be answered.
    assert!(me
        .hello(&hello, (right, 17), None, 0, &mut out)
        .unwrap()
        .is_some());
    assert!(!me.is_live(node(1)));
    assert!(me
        .hello(&hello, (right, 17), Some(5), 0, &mut out)
        .unwrap()
        .is_some());
    assert!(me.is_live(node(1)));
    // Its own number or its own place from outside is a repetition of what it has sent itself.
    let mut own = [0; BODY_LEN_MAX];
    let body = GossipWriter::new(&mut own, 1, record(0, Claim::FIRST)).finish(0);
    let own = Gossip::parse(body, node(0)).unwrap();
    let source = (address(0).port(), 17);
    let own = me.hello(&own, source, Some(6), 0, &mut out);
    assert_eq!(own, Err(Ignored::Own));
}

#[test]
fn an_answer_without_a_question_is_ignored() {
    let mut me = table(0, 10);
    me.add(address(1), 0).unwrap();
    let mut body = [0; BODY_LEN_MAX];
    let body = GossipWriter::new(&mut body, 1, record(1, Claim::FIRST)).finish(0);
    let answer = Gossip::parse(body, node(1)).unwrap();
    assert_eq!(me.members(&answer, 1), Err(Ignored::Unasked));
    assert!(!me.is_live(node(1)));
}

#[test]
fn requests_are_admitted_from_members_at_their_place() {
    let mut net = joined(3, 0);
    let me = net.nodes[0].as_mut().unwrap();
    let (right, wrong) = (address(1).port(), address(2).port());
    for (from, port, qpn, admitted) in [
        (9, right, 17, Err(Discarded::Sender)),
        (1, wrong, 17, Err(Discarded::Address)),
        (1, right, 18, Err(Discarded::Address)),
        (1, right, 17, Ok(address(1))),
        (1, right, 17, Err(Discarded::Repeated)),
    ] {
        // Behind the numbers of its greetings.
        assert_eq!(me.admit(node(from), port, qpn, 1 << 40), admitted);
    }
}

#[test]
fn peers_are_added_and_removed_by_hand() {
    let mut me = table(0, 3);
    assert_eq!(me.add(address(0), 0), Err(Errno::EINVAL), "this node");
    for n in [1, 2, 3, 1, 2, 3] {
        assert_eq!(me.add(address(n), 0), Ok(()));
    }
    assert_eq!(me.add(address(4), 0), Err(Errno::EFBIG));
    assert_eq!(me.remove(address(4)), Err(Errno::ENOENT));
    assert_eq!(me.remove(address(2)), Ok(()));
    assert_eq!(me.remove(address(2)), Err(Errno::ENOENT));
    assert_eq!(me.add(address(4), 0), Ok(()));
    // What is registered already gets the new key.
    let other_key = Address::new(gid(4), 0, 17, 222, 3).unwrap();
    assert_eq!(me.add(other_key, 0), Ok(()));
    assert!(me.peers().any(|peer| peer.address() == other_key));
    assert_eq!(me.peers().count(), 3);
}

/// Each probe waits for the look-up of an address that nobody has, while the next ones get due.
#[test]
fn each_has_its_turn_when_probes_are_sent_slowly() {
    let mut me = table(0, 300);
    for n in 1..=200 {
        me.add(address(n), 0).unwrap();
    }
    let mut now_us = 1;
    let probed: HashSet<_> = (0..200)
        .map(|round| {
            now_us += 1_000_000;
            let mut out = [0; BODY_LEN_MAX];
            me.poll(now_us, round, &mut out).unwrap().to
        })
        .collect();
    assert_eq!(probed.len(), 200);
}

#[test]
fn a_full_table_gives_only_places_of_the_dead() {
    let mut me = table(0, 2);
    let mut number = 0;
    let mut hello = |me: &mut Table, n: u8, claim: Claim| {
        let (mut hello, mut out) = ([0; BODY_LEN_MAX], [0; BODY_LEN_MAX]);
        let body = GossipWriter::new(&mut hello, 1, record(n, claim)).finish(0);
        let hello = Gossip::parse(body, node(n)).unwrap();
        number += 1;
        let source = (address(n).port(), 17);
        let answer = me.hello(&hello, source, Some(number), 0, &mut out);
        answer.map(|answer| answer.is_some())
    };
    assert_eq!(hello(&mut me, 1, Claim::FIRST), Ok(true));
    assert_eq!(hello(&mut me, 2, Claim::FIRST), Ok(true));
    assert_eq!(hello(&mut me, 3, Claim::FIRST), Err(Ignored::Full));
    let left = Claim {
        incarnation: 0,
        standing: Standing::Left,
    };
    assert_eq!(hello(&mut me, 1, left), Ok(false));
    assert_eq!(hello(&mut me, 3, Claim::FIRST), Ok(true));
    assert!(me.is_live(node(2)) && me.is_live(node(3)) && !me.is_live(node(1)));
}

#[test]
fn a_node_contradicts_what_is_said_of_it() {
    let mut me = table(0, 10);
    let (mut hello, mut out) = ([0; BODY_LEN_MAX], [0; BODY_LEN_MAX]);
    let mut writer = GossipWriter::new(&mut hello, 1, record(1, Claim::FIRST));
    writer.push(record(
        0,
        Claim {
            incarnation: 6,
            standing: Standing::Dead,
        },
    ));
    let hello = Gossip::parse(writer.finish(0), node(1)).unwrap();
    me.hello(&hello, (address(1).port(), 17), Some(1), 0, &mut out)
        .unwrap();
    assert_eq!(me.me().claim.incarnation, 7);
    assert_eq!(me.me().claim.standing, Standing::Alive);
}

#[test]
fn a_new_node_introduces_itself_before_it_asks() {
    let mut net = joined(3, 0);
    let mut late = table(9, 10);
    let mut out = [0; BODY_LEN_MAX];
    // It was told of node 1, which does not know it.
    let mut answer = [0; BODY_LEN_MAX];
    late.add(address(0), 0).unwrap();
    let hello = late.poll(0, 5 << 32, &mut out).unwrap();
    let nonce = Gossip::parse(hello.body, node(9)).unwrap().nonce();
    let mut writer = GossipWriter::new(&mut answer, nonce, record(0, Claim::FIRST));
    writer.push(record(1, Claim::FIRST));
    late.members(&Gossip::parse(writer.finish(0), node(0)).unwrap(), 1)
        .unwrap();
    assert!(late.is_live(node(1)));
    let first = net.nodes[1].as_mut().unwrap();
    let unknown = first.admit(node(9), address(9).port(), 17, 1);
    assert_eq!(unknown, Err(Discarded::Sender));
    // Others are due: no request waits until they are greeted.
    (3..8).for_each(|n| late.add(address(n), 1).unwrap());
    let hello = late.introduce(node(1), 2, 6 << 32, &mut out).unwrap();
    assert_eq!((hello.to, hello.node), (address(1), Some(node(1))));
    let hello = Gossip::parse(hello.body, node(9)).unwrap();
    first
        .hello(&hello, (address(9).port(), 17), Some(1), 2, &mut answer)
        .unwrap();
    assert!(first.admit(node(9), address(9).port(), 17, 2).is_ok());
    let next = late.poll(2, 7 << 32, &mut out).unwrap();
    assert_eq!(next.to, address(3), "the first of the others");
    let unknown = late.introduce(node(7), 2, 8 << 32, &mut out);
    assert!(unknown.is_none(), "a node that it does not know");
    let met = first.introduce(node(9), 2, 9 << 32, &mut out);
    assert!(met.is_none(), "a node that has said hello");
}

/// A machine that takes the place of another one may have another Ethernet address.
#[test]
fn the_address_of_a_node_that_does_not_answer_is_looked_up_anew() {
    let mut net = joined(3, 0);
    assert_eq!(net.looked_up, [], "all answer");
    net.nodes[2] = None;
    net.run(20_000);
    assert!(net.looked_up.contains(&2));
    assert!(net.looked_up.iter().all(|to| *to == 2), "of the others");
}
