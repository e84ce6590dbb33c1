// SPDX-License-Identifier: GPL-2.0

//! Has nodes come, go and learn of each other, and replaces the file.

use std::collections::{
    HashMap,
    VecDeque, //
};

use proto::gfarm::cache::{
    address::{
        Address,
        Group,
        NodeId,
        QueuePair, //
    },
    admission::Admission,
    breaker::Breaker,
    gossip::{
        Gossip,
        BODY_LEN_MAX, //
    },
    members::{
        Members,
        Outgoing,
        PeerPlace, //
    },
    pages::PageSet,
    peer::{
        Peer,
        Record, //
    },
    wire::{
        Head,
        Kind, //
    },
};

use crate::{
    lane::Lane,
    message::Event,
    node::{
        DirectoryMemory,
        Node,
        Place, //
    },
    scenario::{
        Pattern,
        MS,
        S, //
    },
    world::World, //
};

/// The reads of a node that ask others at a time.
pub(crate) const LANES: u16 = 16;

/// The time in which all readers have opened a file again that was replaced.
const REOPEN_NS: u64 = 20 * MS;

impl World {
    pub(crate) fn set_up(&mut self) {
        let s = self.s;
        for index in 0..s.nodes {
            let node = self.node(index);
            self.by_id.insert(node.id, index);
            self.nodes.push(node);
        }
        if s.has_gossip {
            self.introduce_all();
        }
        for index in self.some(s.dead) {
            self.nodes[index].alive = false;
        }
        for index in self.some((s.nodes as f64 * s.slow).round() as usize) {
            self.nodes[index].is_slow = true;
        }
        for index in self.some(s.silent) {
            self.nodes[index].is_silent = true;
        }
        for index in 0..s.nodes {
            if !self.nodes[index].alive {
                continue;
            }
            self.tally.readers_left += 1;
            // Nodes that start together do so within a part of a millisecond.
            let at_ns = index as u64 * s.stagger_ns + self.rng.u64(0..200_000);
            self.nodes[index].began_ns = at_ns;
            self.agenda.push(
                at_ns,
                Event::Read {
                    node: index,
                    life: 0,
                },
            );
        }
        if s.churn_ns != 0 {
            self.after(s.churn_ns, Event::Churn);
        }
        if s.rewrite_ns != 0 {
            self.after(s.rewrite_ns, Event::Rewrite);
        }
    }

    /// Returns so many different nodes, at random.
    fn some(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.nodes.len()).collect();
        self.rng.shuffle(&mut all);
        all.truncate(count);
        all
    }

    fn node(&mut self, index: usize) -> Node {
        let id = loop {
            if let Some(id) = NodeId::new(self.rng.u64(..)) {
                break id;
            }
        };
        let mut gid = [0; 16];
        gid[..4].copy_from_slice(&[0xfd, 0, 0, 1]);
        gid[8..].copy_from_slice(&(index as u64).to_be_bytes());
        let Some(address) = Address::new(gid, 0, 17, 111, 0) else {
            unreachable!("the address is a valid one");
        };
        let Ok(replies) = QueuePair::new(18, 222) else {
            unreachable!("the queue pair is a valid one");
        };
        let known = if self.s.knows_groups {
            self.s.groups
        } else {
            1
        };
        // CAST: At most 64.
        let Some(group) = Group::new((index % known + 1) as u8) else {
            unreachable!("the scenarios have at most 64 groups");
        };
        let (plan, depth) = self.plan(index);
        Node {
            id,
            address,
            replies,
            group,
            alive: true,
            life: 0,
            is_slow: false,
            is_silent: false,
            gen: self.gen,
            out_free_ns: 0,
            in_free_ns: 0,
            cpu_free_ns: 0,
            queued: (0, 0),
            cache: std::collections::BTreeMap::new(),
            used: 0,
            reads: std::collections::BTreeMap::new(),
            unasked: VecDeque::new(),
            asking: None,
            missing: VecDeque::new(),
            batch: Vec::new(),
            lanes: (0..LANES).map(Lane::new).collect(),
            keys_free_ns: 0,
            contacts: HashMap::new(),
            breaker: Breaker::NEW,
            admission: Admission::new(self.s.serving, 0),
            waiters: Vec::new(),
            look_ns: 0,
            directory: DirectoryMemory::new(self.s.directory_groups),
            members: None,
            poll_ns: u64::MAX,
            plan: plan.into(),
            depth,
            began_ns: 0,
            done_ns: None,
            bytes_out: 0,
        }
    }

    /// Returns what a node reads, and how many reads it has in flight.
    fn plan(&mut self, index: usize) -> (Vec<Place>, usize) {
        let chunks = self.s.chunks;
        match self.s.pattern {
            Pattern::Sequential(depth) => {
                let len = self.s.read_pages;
                let reads = (0..chunks * 256).step_by(len);
                // CAST: Below 256.
                let place = |page: u64| (page / 256, PageSet::range((page % 256) as u8, len));
                (reads.map(place).collect(), depth)
            }
            Pattern::Random(count) => {
                let place = |_| {
                    let first = 16 * self.rng.u8(0..16);
                    (self.rng.u64(0..chunks), PageSet::range(first, 16))
                };
                ((0..count).map(place).collect(), 1)
            }
            Pattern::Strided(step) => {
                let runs = (index as u64 % step..chunks * 8).step_by(step as usize);
                let place = |run: u64| (run / 8, PageSet::range((run % 8 * 32) as u8, 32));
                (runs.map(place).collect(), 2)
            }
            Pattern::Epochs(epochs) => {
                let epochs = (0..epochs).flat_map(|epoch| self.share(epoch, index));
                (epochs.collect(), 2)
            }
        }
    }

    /// Returns the chunks that a node reads in an epoch: each is one node's, another one in each
    /// epoch, in any order.
    fn share(&self, epoch: u64, index: usize) -> Vec<Place> {
        let mut rng = fastrand::Rng::with_seed(self.s.seed ^ (epoch + 1) << 32);
        let mut chunks: Vec<u64> = (0..self.s.chunks).collect();
        rng.shuffle(&mut chunks);
        let own = chunks.into_iter().skip(index).step_by(self.s.nodes);
        own.map(|chunk| (chunk, PageSet::range(0, 256))).collect()
    }

    /// Every node knows every other one, or as many as it has room for.
    fn introduce_all(&mut self) {
        let records: Vec<Record> = self.nodes.iter().map(Node::record).collect();
        for index in 0..self.nodes.len() {
            let mut others = records.clone();
            others.remove(index);
            let mut spare = 64;
            if self.s.peers_max != 0 {
                self.rng.shuffle(&mut others);
                others.truncate(self.s.peers_max);
                spare = 0;
            }
            let mut places: Vec<PeerPlace> = others
                .iter()
                .map(|record| {
                    let mut peer = Peer::heard_of(record, false, 0, 0);
                    peer.met();
                    PeerPlace::of(Some(peer))
                })
                .collect();
            places.resize(places.len() + spare, PeerPlace::EMPTY);
            self.join(index, places);
        }
    }

    /// Every node knows the first one, and no other.
    pub(crate) fn find_through_one(&mut self) {
        let seed = self.nodes[0].address;
        for index in 0..self.nodes.len() {
            let mut places = vec![PeerPlace::EMPTY; self.nodes.len() + 8];
            if index != 0 {
                places[0] = PeerPlace::of(Some(Peer::by_hand(seed, 0)));
            }
            self.join(index, places);
        }
    }

    fn join(&mut self, index: usize, places: Vec<PeerPlace>) {
        let (now_us, random) = (self.now_us(), self.rng.u32(..));
        let node = &mut self.nodes[index];
        node.members = Some(Members::new(node.record(), places, now_us, random));
        self.poll(index);
    }

    /// Greets a node before the first request to it, if it does not know this one yet.
    pub(crate) fn introduce(&mut self, n: usize, node: NodeId) {
        let (mut out, random, now_us) = ([0; BODY_LEN_MAX], self.rng.u64(..), self.now_us());
        let members = self.nodes[n].members.as_mut();
        let hello = members.and_then(|m| m.introduce(node, now_us, random, &mut out));
        if let Some(hello) = hello {
            self.send_hello(n, &hello);
            self.poll(n);
        }
    }

    fn send_hello(&mut self, n: usize, hello: &Outgoing<'_>) {
        let is_there = |node: &Node| node.alive && node.address.is_same_place(&hello.to);
        let named = hello.node.and_then(|id| self.by_id.get(&id).copied());
        let named = named.filter(|named| is_there(&self.nodes[*named]));
        let Some(to) = named.or_else(|| self.nodes.iter().position(is_there)) else {
            self.tally.gossip += 1;
            return;
        };
        let now_us = self.now_us();
        let sender = &mut self.nodes[n];
        let members = sender.members.as_mut();
        let head = Head {
            kind: Kind::Hello,
            from: sender.id,
            to: hello.node,
            sequence: members.map_or(0, |m| m.next_sequence(hello.node, now_us)),
        };
        self.send_sealed(n, to, &head, hello.body);
    }

    /// Sends what the members of a node have to send.
    pub(crate) fn poll(&mut self, n: usize) {
        let now_us = self.now_us();
        loop {
            let (mut out, random) = ([0; BODY_LEN_MAX], self.rng.u64(..));
            let Some(members) = &mut self.nodes[n].members else {
                return;
            };
            let Some(outgoing) = members.poll(now_us, random, &mut out) else {
                break;
            };
            self.send_hello(n, &outgoing);
        }
        let node = &mut self.nodes[n];
        let due_ns = node
            .members
            .as_ref()
            .map_or(u64::MAX, |m| m.due_us() * 1_000);
        if due_ns < node.poll_ns || node.poll_ns <= self.now_ns {
            node.poll_ns = due_ns;
            let life = node.life;
            self.agenda.push(
                due_ns.max(self.now_ns + 1_000),
                Event::Poll { node: n, life },
            );
        }
    }

    pub(crate) fn answered(&mut self, n: usize, answer: &Gossip<'_>) {
        let now_us = self.now_us();
        if let Some(members) = &mut self.nodes[n].members {
            let is_answer = members.members(answer, now_us).is_ok();
            if is_answer {
                self.heard(n);
            }
            self.poll(n);
        }
    }

    pub(crate) fn greeted(
        &mut self,
        n: usize,
        from: usize,
        hello: &Gossip<'_>,
        number: Option<u64>,
    ) {
        let (now_us, address) = (self.now_us(), self.nodes[from].address);
        let source = (address.port(), address.qpn());
        let Some(members) = &mut self.nodes[n].members else {
            return;
        };
        let mut out = [0; BODY_LEN_MAX];
        let answer = members.hello(hello, source, number, now_us, &mut out);
        if let Ok(Some(body)) = answer {
            let head = Head {
                kind: Kind::Members,
                from: self.nodes[n].id,
                to: Some(self.nodes[from].id),
                sequence: self.next_sequence(n, from),
            };
            self.send_sealed(n, from, &head, body);
        }
        self.poll(n);
    }

    /// A node dies, and a new one joins, which knows one other.
    pub(crate) fn churn(&mut self) {
        let alive: Vec<usize> = (0..self.nodes.len())
            .filter(|n| self.nodes[*n].alive)
            .collect();
        let victim = alive[self.rng.usize(0..alive.len())];
        let node = &mut self.nodes[victim];
        node.alive = false;
        node.life += 1;
        if node.done_ns.is_none() {
            self.tally.readers_left -= 1;
        }
        let seeds: Vec<usize> = alive.into_iter().filter(|n| *n != victim).collect();
        let seed = self.nodes[seeds[self.rng.usize(0..seeds.len())]].address;
        let index = self.nodes.len();
        let mut node = self.node(index);
        node.began_ns = self.now_ns;
        self.by_id.insert(node.id, index);
        self.nodes.push(node);
        let mut places = vec![PeerPlace::EMPTY; self.s.nodes + 256];
        places[0] = PeerPlace::of(Some(Peer::by_hand(seed, self.now_us())));
        self.join(index, places);
        self.tally.readers_left += 1;
        // It reads when it has joined.
        self.after(
            20 * MS,
            Event::Read {
                node: index,
                life: 0,
            },
        );
        if self.now_ns < 2 * S {
            self.after(self.s.churn_ns, Event::Churn);
        }
    }

    /// The file is replaced: the readers notice it one after the other.
    pub(crate) fn rewrite(&mut self) {
        self.gen += 1;
        for node in 0..self.nodes.len() {
            let delay_ns = self.rng.u64(0..REOPEN_NS);
            let life = self.nodes[node].life;
            self.after(delay_ns, Event::Reopen { node, life });
        }
    }
}
