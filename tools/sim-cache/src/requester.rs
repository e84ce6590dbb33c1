// SPDX-License-Identifier: GPL-2.0

//! The reads of a node: pages that it does not have are asked for at other nodes, piece by piece,
//! and what these have not given is read from a file server.

use proto::gfarm::cache::{
    excluded::EXCLUDED_MAX,
    have::Have,
    pages::PageSet,
    request::Wanted,
    requester::{
        event::Event as Told, //
    },
    wire::Kind, //
};

use crate::{
    message::Generation,
    node::Read,
    scenario::Mutation,
    world::World, //
};

impl World {
    /// The reader goes on: it begins as many reads as it may have in flight.
    pub(crate) fn read_on(&mut self, n: usize) {
        while self.nodes[n].reads.len() < self.nodes[n].depth {
            let node = &mut self.nodes[n];
            let Some((chunk, pages)) = node.plan.pop_front() else {
                break;
            };
            let gen = node.gen;
            let there = node.cached(chunk, gen);
            let missing = pages.difference(there);
            if missing.is_empty() {
                node.keep(chunk, gen, PageSet::EMPTY, 0);
                continue;
            }
            self.begin(n, chunk, gen, missing);
        }
        let node = &mut self.nodes[n];
        if node.reads.is_empty() && node.plan.is_empty() && node.done_ns.is_none() {
            node.done_ns = Some(self.now_ns);
            self.tally.readers_left -= 1;
        }
    }

    fn begin(&mut self, n: usize, chunk: u64, gen: Generation, pages: PageSet) {
        let number = self.next_read;
        self.next_read += 1;
        let is_alone = n == 0 && self.s.is_first_alone;
        let rest = if self.has_cache() && !is_alone {
            pages
        } else {
            PageSet::EMPTY
        };
        let read = Read {
            chunk,
            gen,
            pages,
            missing: pages,
            rest,
            has_begun: false,
            lane: None,
            owners: Vec::new(),
            began_ns: self.now_ns,
        };
        self.nodes[n].reads.insert(number, read);
        self.begin_asking(n, number);
    }

    /// Asks other nodes for the next piece; what is missing behind the last one is for the file
    /// server.
    pub(crate) fn go_on(&mut self, n: usize, number: u64) {
        let len = self.fragment_len;
        let is_cut = self.is_cut(n);
        let Some(read) = self.nodes[n].reads.get_mut(&number) else {
            return;
        };
        if is_cut {
            read.rest = PageSet::EMPTY;
        }
        let piece = read.rest.lowest(len.pages_max());
        read.rest = read.rest.difference(piece);
        let (chunk, gen, missing) = (read.chunk, read.gen, read.missing);
        let lanes = &self.nodes[n].lanes;
        let idle = (0..lanes.len()).filter(|at| lanes[*at].is_over);
        // One that has its key is taken first.
        let lane = idle.min_by_key(|at| (lanes[*at].keyed_ns, *at));
        let wanted = Wanted::new(self.file(gen), self.s.file_bytes(), chunk, piece);
        let (Some(lane), Ok(wanted)) = (lane, wanted) else {
            return self.asking_over(n, number, !missing.is_empty());
        };
        let id = self.nodes[n].id;
        let now_us = self.now_us();
        let node = &mut self.nodes[n];
        if !node.lanes[lane].begin(id, number, wanted, len, now_us) {
            self.tally.violate("a piece has too many fragments");
            return;
        }
        if let Some(machine) = &mut node.lanes[lane].machine {
            machine.set_limit(self.s.read_us);
            if self.s.verifies {
                machine.compare();
            }
        }
        let contacts = node.contacts.iter();
        let lost = contacts.filter(|(_, contact)| contact.rtt.is_lost(now_us));
        let mut lost: Vec<usize> = lost.map(|(peer, _)| *peer).collect();
        lost.sort_unstable();
        for peer in lost.into_iter().take(EXCLUDED_MAX) {
            let peer = self.nodes[peer].id;
            if let Some(machine) = &mut self.nodes[n].lanes[lane].machine {
                machine.avoid(peer);
            }
        }
        let node = &mut self.nodes[n];
        if let Some(read) = node.reads.get_mut(&number) {
            read.lane = Some(lane);
        }
        self.tell(n, lane, Told::Start);
    }

    /// Other nodes have given these pages of a piece, and give no more.
    pub(crate) fn piece_over(&mut self, n: usize, lane: usize, got: PageSet) {
        let node = &mut self.nodes[n];
        let number = node.lanes[lane].read;
        let owners = node.lanes[lane].machine.as_ref().map(|m| *m.owners());
        let Some(read) = node.reads.get_mut(&number) else {
            // The file was opened again.
            return;
        };
        read.lane = None;
        read.missing = read.missing.difference(got);
        for owner in owners.iter().flat_map(|owners| owners.iter()) {
            if !read.owners.contains(&owner) {
                read.owners.push(owner);
            }
        }
        self.tally.from_nodes += got.len() as u64;
        self.go_on(n, number);
    }

    /// Takes the pages of a read into the page cache, if the file is still the same.
    pub(crate) fn done(&mut self, n: usize, number: u64) {
        let room = self.s.cache_chunks;
        let node = &mut self.nodes[n];
        let Some(read) = node.reads.remove(&number) else {
            return;
        };
        if node.gen != read.gen {
            self.tally
                .violate("pages of an old generation are in the cache");
        }
        node.keep(read.chunk, read.gen, read.pages, room);
        self.decay(n, &read);
        self.tally.pages += read.pages.len() as u64;
        self.tally.latency(self.now_ns - read.began_ns);
        self.serve_waiters(n, read.chunk);
        self.tell_owners(n, &read);
        self.read_on(n);
    }

    /// The memory of some pages of a read goes bad.
    fn decay(&mut self, n: usize, read: &Read) {
        let part = self.s.decay;
        if part == 0.0 {
            return;
        }
        for page in read.pages.iter() {
            let is_bad = self.rng.f64() < part;
            if let Some(cached) = self.nodes[n].cache.get_mut(&read.chunk).filter(|_| is_bad) {
                cached.damaged.insert(page);
            }
        }
    }

    /// Tells the owners that this node has its pages.
    fn tell_owners(&mut self, n: usize, read: &Read) {
        if !self.s.has_notices {
            return;
        }
        let Ok(have) = Have::new(self.file(read.gen), read.chunk, read.pages) else {
            return;
        };
        for owner in &read.owners {
            let to = self.by_id[owner];
            if to == n {
                self.told_of(n, *owner, &have);
            } else {
                self.send_body(n, to, Kind::Have, &have.to_bytes());
            }
        }
    }

    /// The file has another content: the reads of the old one leave, and begin again.
    pub(crate) fn reopen(&mut self, n: usize) {
        let gen = self.gen;
        let node = &mut self.nodes[n];
        node.gen = gen;
        node.cache.clear();
        if node.began_ns > self.now_ns || self.s.mutation == Some(Mutation::KeepsOldPages) {
            return;
        }
        let reads = std::mem::take(&mut node.reads);
        self.leave(n);
        let node = &mut self.nodes[n];
        for read in reads.values().rev() {
            node.plan.push_front((read.chunk, read.pages));
        }
        for lane in reads.values().filter_map(|read| read.lane) {
            self.tell(n, lane, Told::Cancel);
        }
        for chunk in reads.values().map(|read| read.chunk) {
            self.serve_waiters(n, chunk);
        }
        self.read_on(n);
    }
}
