// SPDX-License-Identifier: GPL-2.0

//! The nodes, the network and the file servers, and how time goes on.

use std::collections::HashMap;

use proto::gfarm::{
    attr::{
        FileId,
        Time, //
    },
    cache::{
        address::{
            Group,
            NodeId, //
        },
        fragment::FragmentLen,
        owner::{
            hashes,
            parts,
            ChunkKey,
            Population,
            Ranking, //
        },
        pages::PageSet,
        wire::Key, //
    },
    identity::ContentId,
};

use crate::{
    agenda::Agenda,
    figures::Tally,
    message::{
        Event,
        Generation, //
    },
    node::Node,
    scenario::{
        Scenario,
        Source, //
    },
};

/// The inode that all read.
const INUM: u64 = 77;

/// The events after which a run is taken to go on for ever, for each request of a read.
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
    pub(crate) fragment_len: FragmentLen,
    pub(crate) key: Key,
    owners: HashMap<(u64, usize), (usize, usize)>,
}

impl World {
    pub(crate) fn new(s: Scenario) -> Self {
        let Some(fragment_len) = FragmentLen::new(s.fragment_len) else {
            unreachable!("the scenarios have valid lengths");
        };
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
            fragment_len,
            key: Key::new(b"key of all nodes"),
            owners: HashMap::new(),
        };
        world.set_up();
        world
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    /// Returns a content of the file. Every second one, which one is a matter of the seed, is
    /// written in the place of the one before, with the same generation.
    pub(crate) const fn file(&self, gen: Generation) -> ContentId {
        ContentId {
            file: FileId {
                inum: INUM,
                gen: (gen + 2 + self.s.seed % 2) / 2,
            },
            mtime: Time {
                // CAST: A small number.
                sec: gen as i64,
                nsec: 0,
            },
        }
    }

    pub(crate) fn after(&mut self, delay_ns: u64, event: Event) {
        self.agenda.push(self.now_ns + delay_ns, event);
    }

    /// Runs until every reader has read its part.
    pub(crate) fn run(&mut self) {
        let reads = self.nodes.iter().map(|node| node.plan.len() + 8);
        let pieces = 256 / self.fragment_len.pages_max();
        let limit = (EVENTS_MAX * pieces * reads.sum::<usize>()) as u64;
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
                self.take(to, message);
            }
            Event::Fragments { transfer, numbers }
                if self.is_current(transfer.to, transfer.life) =>
            {
                self.fragments(&transfer, &numbers);
            }
            Event::Released { node, life, peer } if self.is_current(node, life) => {
                self.release(node, peer);
            }
            Event::Fetched {
                to,
                life,
                read,
                pages,
            } if self.is_current(to, life) => self.fetched(to, read, pages),
            Event::Timer {
                node,
                life,
                lane,
                round,
            } if self.is_current(node, life) => self.timer(node, lane, round),
            Event::Stopped { node, life, lane } if self.is_current(node, life) => {
                self.stopped(node, lane);
            }
            Event::Keyed {
                node,
                life,
                lane,
                round,
            } if self.is_current(node, life) => self.keyed(node, lane, round),
            Event::CutOff { node, life } if self.is_current(node, life) => self.cut_off(node),
            Event::KeepAlive { node, life } if self.is_current(node, life) => self.keep_alive(node),
            Event::Read { node, life } if self.is_current(node, life) => self.read_on(node),
            Event::Poll { node, life } if self.is_current(node, life) => self.poll(node),
            Event::Reopen { node, life } if self.is_current(node, life) => self.reopen(node),
            Event::Churn => self.churn(),
            Event::Rewrite => self.rewrite(),
            _ => {}
        }
    }

    /// Reads pages from a file server.
    pub(crate) fn fetch(&mut self, node: usize, read: u64, pages: PageSet) {
        let len = pages.len() as u64 * 4096;
        self.tally.gfsd_bytes += len;
        self.tally.gfsd_requests += 1;
        let begin_ns = self.gfsd_free_ns.max(self.now_ns);
        self.gfsd_free_ns = begin_ns + len * 1_000 / self.s.gfsd_bytes_per_us;
        let rate = self.rate(node);
        let receiver = &mut self.nodes[node];
        receiver.in_free_ns = receiver.in_free_ns.max(self.now_ns) + len * 1_000 / rate;
        let there_ns = receiver.in_free_ns.max(self.gfsd_free_ns);
        let hung_ns = if node == 0 { self.s.hung_ns } else { 0 };
        let (at_ns, life) = (there_ns + self.s.gfsd_ns + hung_ns, receiver.life);
        let event = Event::Fetched {
            to: node,
            life,
            read,
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
        if let Some(members) = &mut self.nodes[node].members {
            let owners = members.owners(key, id, is_excluded);
            let index = |id| self.by_id.get(&id).copied().unwrap_or(node);
            return (index(owners.near), index(owners.root));
        }
        let excludes = self.nodes.iter().any(|node| is_excluded(node.id));
        if let Some(owners) = self.owners.get(&(chunk, requester)).filter(|_| !excludes) {
            return *owners;
        }
        let group = self.nodes[requester].group;
        let mut population = Population::NONE;
        let all = self.nodes.iter();
        all.for_each(|node| population.add(node.group));
        let first = |hash, within: Option<Group>| {
            let mut ranking = Ranking::new(hash);
            let all = self.nodes.iter();
            let of = all.filter(|node| within.is_none_or(|within| within == node.group));
            of.for_each(|node| ranking.offer(node.id));
            let first = ranking.first(&is_excluded);
            first.map(|id| self.by_id[&id])
        };
        let (near, root) = hashes(key, id, parts(population.of(group)));
        let root = first(root, None).unwrap_or(node);
        let owners = (first(near, population.near(group)).unwrap_or(root), root);
        if !excludes {
            self.owners.insert((chunk, requester), owners);
        }
        owners
    }

    pub(crate) const fn has_cache(&self) -> bool {
        matches!(self.s.source, Source::Cache)
    }
}
