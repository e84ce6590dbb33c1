// SPDX-License-Identifier: GPL-2.0

//! The nodes, the network and the file servers, and how time goes on.

use std::collections::HashMap;

use proto::gfarm::{
    attr::FileId,
    cache::{
        address::NodeId,
        owner::{
            groups,
            ChunkKey,
            OwnerSearch, //
        },
        pages::PageSet, //
    },
};

use crate::{
    agenda::Agenda,
    figures::Tally,
    message::{
        Event,
        Generation,
        Message, //
    },
    node::Node,
    scenario::{
        Scenario,
        Source, //
    },
};

/// The inode that all read.
const INUM: u64 = 77;

/// The events after which a run is taken to go on for ever, for each read of a node.
const EVENTS_MAX: usize = 500;

/// All there is.
pub(crate) struct World {
    pub(crate) s: Scenario,
    pub(crate) rng: fastrand::Rng,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) now_ns: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) by_id: HashMap<NodeId, usize>,
    pub(crate) gfsd_free_ns: u64,
    /// The generation that gfmd tells of.
    pub(crate) gen: Generation,
    pub(crate) next_read: u64,
    pub(crate) tally: Tally,
    owners: HashMap<(u64, usize), (usize, usize)>,
}

impl World {
    pub(crate) fn new(s: Scenario) -> Self {
        let mut world = Self {
            s,
            rng: fastrand::Rng::with_seed(s.seed),
            agenda: Agenda::new(),
            now_ns: 0,
            nodes: Vec::new(),
            by_id: HashMap::new(),
            gfsd_free_ns: 0,
            gen: 1,
            next_read: 1,
            tally: Tally::default(),
            owners: HashMap::new(),
        };
        world.set_up();
        world
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    pub(crate) const fn file(&self, gen: Generation) -> FileId {
        FileId { inum: INUM, gen }
    }

    pub(crate) fn after(&mut self, delay_ns: u64, event: Event) {
        self.agenda.push(self.now_ns + delay_ns, event);
    }

    /// Runs until every reader has read its part.
    pub(crate) fn run(&mut self) {
        let reads = self.nodes.iter().map(|node| node.plan.len() + 8);
        let limit = (EVENTS_MAX * reads.sum::<usize>()) as u64;
        while let Some((at_ns, event)) = self.agenda.pop() {
            self.now_ns = at_ns;
            self.tally.events += 1;
            self.happen(event);
            if self.is_done() {
                return;
            }
            if self.tally.events > limit {
                self.tally.violate("the run does not end");
                return;
            }
        }
        if !self.is_done() {
            self.tally
                .violate("a reader waits, and nothing happens any more");
        }
    }

    fn is_done(&self) -> bool {
        self.tally.readers_left == 0
    }

    fn is_current(&self, node: usize, life: u32) -> bool {
        let node = &self.nodes[node];
        node.alive && node.life == life
    }

    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { to, message } => self.arrive(to, message),
            Event::Serve { to, life, message } if self.is_current(to, life) => {
                self.nodes[to].queued -= 1;
                self.take(to, message);
            }
            Event::Bulk {
                to,
                life,
                read,
                attempt,
                gen,
                pages,
            } if self.is_current(to, life) => self.bulk(to, read, attempt, gen, pages),
            Event::Fetched {
                to,
                life,
                read,
                gen,
                pages,
            } if self.is_current(to, life) => self.fetched(to, read, gen, pages),
            Event::Timer {
                node,
                life,
                read,
                attempt,
                round,
            } if self.is_current(node, life) => self.timer(node, read, attempt, round),
            Event::Again {
                node,
                life,
                read,
                attempt,
            } if self.is_current(node, life) => self.again(node, read, attempt),
            Event::KeepAlive { node, life } if self.is_current(node, life) => self.keep_alive(node),
            Event::Read { node, life } if self.is_current(node, life) => self.read_on(node),
            Event::Poll { node, life } if self.is_current(node, life) => self.poll(node),
            Event::Reopen { node, life } if self.is_current(node, life) => self.reopen(node),
            Event::Churn => self.churn(),
            Event::Rewrite => self.rewrite(),
            _ => {}
        }
    }

    fn take(&mut self, to: usize, message: Message) {
        match message {
            Message::Request(request) if request.at_holder => self.asked_as_holder(to, request),
            Message::Request(request) => self.asked_as_owner(to, request),
            Message::Reply {
                from,
                read,
                attempt,
                answer,
            } => self.replied(to, from, read, attempt, answer),
            Message::Have {
                from,
                gen,
                chunk,
                pages,
            } => self.told_of(to, from, gen, chunk, pages),
            Message::Gossip {
                from,
                is_answer,
                names_receiver,
                body,
            } => self.gossip(to, from, is_answer, names_receiver, &body),
        }
    }

    /// Sends a datagram to a public queue pair, `later_ns` from now.
    pub(crate) fn send(&mut self, from: usize, to: usize, later_ns: u64, message: Message) {
        match message {
            Message::Gossip { .. } => self.tally.gossip += 1,
            _ => self.tally.datagrams += 1,
        }
        if self.rng.f64() < self.s.loss {
            return;
        }
        // Datagrams that are sent at the same time arrive in any order.
        let jitter_ns = self.rng.u64(0..2_000);
        let slow_ns = if self.nodes[from].is_slow {
            50 * self.s.service_ns
        } else {
            0
        };
        let delay_ns = later_ns + self.s.latency_ns + jitter_ns + slow_ns;
        self.after(delay_ns, Event::Arrive { to, message });
    }

    fn arrive(&mut self, to: usize, message: Message) {
        let (now_ns, room, service_ns) = (self.now_ns, self.s.receives, self.s.service_ns);
        let node = &mut self.nodes[to];
        if !node.alive {
            return;
        }
        if node.queued >= room {
            self.tally.overruns += 1;
            return;
        }
        node.queued += 1;
        self.tally.queue_max = self.tally.queue_max.max(node.queued);
        node.cpu_free_ns = node.cpu_free_ns.max(now_ns) + service_ns;
        let (at_ns, life) = (node.cpu_free_ns, node.life);
        self.agenda.push(at_ns, Event::Serve { to, life, message });
    }

    fn rate(&self, node: usize) -> u64 {
        let full = self.s.node_bytes_per_us;
        if self.nodes[node].is_slow {
            full / 20
        } else {
            full
        }
    }

    /// Sends pages to a data queue pair. Returns when the last fragment arrives.
    pub(crate) fn send_pages(&mut self, from: usize, to: usize, len: u64) -> u64 {
        let (out, into) = (self.rate(from), self.rate(to));
        let (out_ns, in_ns) = (len * 1_000 / out, len * 1_000 / into.min(out));
        let now_ns = self.now_ns;
        let sender = &mut self.nodes[from];
        let begin_ns = sender.out_free_ns.max(now_ns);
        sender.out_free_ns = begin_ns + out_ns;
        sender.bytes_out += len;
        let receiver = &mut self.nodes[to];
        let there_ns = receiver.in_free_ns.max(begin_ns + self.s.latency_ns);
        receiver.in_free_ns = there_ns + in_ns;
        receiver.in_free_ns
    }

    /// Returns the bytes that a node has still to send.
    pub(crate) fn backlog(&self, n: usize) -> u64 {
        let ns = self.nodes[n].out_free_ns.saturating_sub(self.now_ns);
        ns * self.rate(n) / 1_000
    }

    /// Returns the pages of which all fragments arrive.
    pub(crate) fn survivors(&mut self, pages: PageSet) -> PageSet {
        if self.s.loss == 0.0 {
            return pages;
        }
        let parts = 4096u64.div_ceil(self.s.fragment_len);
        let mut there = PageSet::EMPTY;
        for page in pages.iter() {
            if (0..parts).all(|_| self.rng.f64() >= self.s.loss) {
                there.insert(page);
            }
        }
        there
    }

    /// Reads pages from a file server.
    pub(crate) fn fetch(&mut self, node: usize, read: u64, gen: Generation, pages: PageSet) {
        let len = pages.len() as u64 * 4096;
        self.tally.gfsd_bytes += len;
        self.tally.gfsd_requests += 1;
        let begin_ns = self.gfsd_free_ns.max(self.now_ns);
        self.gfsd_free_ns = begin_ns + len * 1_000 / self.s.gfsd_bytes_per_us;
        let rate = self.rate(node);
        let receiver = &mut self.nodes[node];
        receiver.in_free_ns = receiver.in_free_ns.max(self.now_ns) + len * 1_000 / rate;
        let there_ns = receiver.in_free_ns.max(self.gfsd_free_ns);
        let (at_ns, life) = (there_ns + self.s.gfsd_ns, receiver.life);
        let event = Event::Fetched {
            to: node,
            life,
            read,
            gen,
            pages,
        };
        self.agenda.push(at_ns, event);
    }

    /// Returns the owners of a chunk for a requester as a node sees them, without those that are
    /// excluded: the near one and the root.
    pub(crate) fn owners(
        &mut self,
        node: usize,
        chunk: u64,
        requester: usize,
        is_excluded: impl Fn(NodeId) -> bool,
    ) -> (usize, usize) {
        let (key, id) = (ChunkKey::new(INUM, chunk), self.nodes[requester].id);
        if let Some(members) = &self.nodes[node].members {
            let owners = members.owners(key, id, is_excluded);
            let index = |id| self.by_id.get(&id).copied().unwrap_or(node);
            return (index(owners.near), index(owners.root));
        }
        let excludes = self.nodes.iter().any(|node| is_excluded(node.id));
        if let Some(owners) = self.owners.get(&(chunk, requester)).filter(|_| !excludes) {
            return *owners;
        }
        let mut search = OwnerSearch::new(key, id, groups(self.nodes.len()));
        let ids = self.nodes.iter().map(|node| node.id);
        ids.filter(|id| !is_excluded(*id))
            .for_each(|id| search.offer(id));
        let owners = search.owners();
        let owners = owners.map_or((node, node), |o| (self.by_id[&o.near], self.by_id[&o.root]));
        if !excludes {
            self.owners.insert((chunk, requester), owners);
        }
        owners
    }

    pub(crate) const fn has_cache(&self) -> bool {
        matches!(self.s.source, Source::Cache)
    }
}
