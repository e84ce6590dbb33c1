// SPDX-License-Identifier: GPL-2.0

//! A node: its page cache, its reads, and what it knows of others.

use std::collections::{
    BTreeMap,
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
    admission::{
        Admission,
        Credits,
        PeerLoad, //
    },
    breaker::Breaker,
    directory::{
        Directory,
        Entry,
        Hint,
        Holder, //
    },
    keep::Keep,
    members::{
        Members,
        PeerPlace, //
    },
    pages::PageSet,
    peer::{
        Claim,
        Record, //
    },
    request::Request,
    rtt::Rtt,
    window::ReplayWindow,
    wire::QpRole, //
};

use crate::{
    lane::Lane,
    message::Generation, //
};

/// Pages of one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) gen: Generation,
    pub(crate) pages: PageSet,
    /// The pages whose memory has gone bad.
    pub(crate) damaged: PageSet,
    pub(crate) used: u64,
}

/// A read of pages of one chunk, as one subrequest: others see its pages when all are there.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) chunk: u64,
    pub(crate) gen: Generation,
    /// The pages that were asked for, and those that are not there yet.
    pub(crate) pages: PageSet,
    pub(crate) missing: PageSet,
    /// The pages for which other nodes are still to be asked.
    pub(crate) rest: PageSet,
    /// Whether a worker has begun to ask them: others do not see it before.
    pub(crate) has_begun: bool,
    /// The lane that asks them.
    pub(crate) lane: Option<usize>,
    /// The owners that were asked.
    pub(crate) owners: Vec<NodeId>,
    pub(crate) began_ns: u64,
}

/// A request that a node keeps.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) from: usize,
    pub(crate) request: Request,
    pub(crate) keep: Keep,
}

/// The knowledge of a node about one that it asks, and about one that asks it.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    pub(crate) rtt: Rtt,
    pub(crate) credits: Credits,
    pub(crate) load: PeerLoad,
    /// The number of the last datagram to it, and those of its datagrams, if there are no members.
    pub(crate) sequence: u64,
    pub(crate) window: ReplayWindow,
}

impl Default for Contact {
    fn default() -> Self {
        Self {
            rtt: Rtt::NEW,
            credits: Credits::NEW,
            load: PeerLoad::NEW,
            sequence: 0,
            window: ReplayWindow::default(),
        }
    }
}

/// The memory of a directory.
pub(crate) struct DirectoryMemory {
    entries: Vec<Entry>,
    holders: Vec<Option<Holder>>,
    hints: Vec<Option<Hint>>,
}

impl DirectoryMemory {
    /// Returns that of so many groups.
    pub(crate) fn new(groups: usize) -> Self {
        let (entries, holders, hints) = Directory::GROUP;
        Self {
            entries: vec![Entry::EMPTY; groups * entries],
            holders: vec![None; groups * holders],
            hints: vec![None; groups * hints],
        }
    }

    pub(crate) fn get(&mut self) -> Directory<'_> {
        Directory::new(&mut self.entries, &mut self.holders, &mut self.hints)
    }
}

/// A place in the file that the reader will read.
pub(crate) type Place = (u64, PageSet);

/// A node.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) address: Address,
    /// The queue pair to which nodes that it asks reply.
    pub(crate) replies: QueuePair,
    pub(crate) group: Group,
    pub(crate) alive: bool,
    /// Events of an earlier life are void.
    pub(crate) life: u32,
    pub(crate) is_slow: bool,
    /// The node answers no request and sends no notice, but is a good member.
    pub(crate) is_silent: bool,
    /// The generation that its reader has opened.
    pub(crate) gen: Generation,
    /// The times when the link is free, out and in, and when the processor is.
    pub(crate) out_free_ns: u64,
    pub(crate) in_free_ns: u64,
    pub(crate) cpu_free_ns: u64,
    /// Datagrams that were received by the public queue pair and by that for replies, and not
    /// looked at.
    pub(crate) queued: (usize, usize),
    pub(crate) cache: BTreeMap<u64, Cached>,
    pub(crate) used: u64,
    pub(crate) reads: BTreeMap<u64, Read>,
    /// The reads that wait for a worker: to ask other nodes, and to read from a file server; and
    /// those that are being read there.
    pub(crate) unasked: VecDeque<u64>,
    pub(crate) asking: Option<u64>,
    pub(crate) missing: VecDeque<u64>,
    pub(crate) batch: Vec<u64>,
    /// The queue pairs for data.
    pub(crate) lanes: Vec<Lane>,
    /// The time when the worker is free that prepares them.
    pub(crate) keys_free_ns: u64,
    pub(crate) contacts: HashMap<usize, Contact>,
    /// Whether it asks others.
    pub(crate) breaker: Breaker,
    pub(crate) admission: Admission,
    /// Requests for pages that this node is fetching.
    pub(crate) waiters: Vec<Waiter>,
    /// The time when it looks at them next.
    pub(crate) look_ns: u64,
    pub(crate) directory: DirectoryMemory,
    pub(crate) members: Option<Members<Vec<PeerPlace>>>,
    pub(crate) poll_ns: u64,
    /// The places that the reader still has to read, and the number of reads at a time.
    pub(crate) plan: VecDeque<Place>,
    pub(crate) depth: usize,
    pub(crate) began_ns: u64,
    pub(crate) done_ns: Option<u64>,
    pub(crate) bytes_out: u64,
}

impl Node {
    /// Returns what it tells of itself as it begins.
    pub(crate) fn record(&self) -> Record {
        Record {
            node: self.id,
            address: self.address,
            boot: 1,
            claim: Claim::FIRST,
            group: self.group,
        }
    }

    /// Returns the number of datagrams that a queue pair has received, and that were not looked at.
    pub(crate) const fn queued(&mut self, role: QpRole) -> &mut usize {
        match role {
            QpRole::Public => &mut self.queued.0,
            QpRole::Replies => &mut self.queued.1,
        }
    }

    /// Returns the pages of a generation that are in the cache.
    pub(crate) fn cached(&self, chunk: u64, gen: Generation) -> PageSet {
        let cached = self.cache.get(&chunk).filter(|cached| cached.gen == gen);
        cached.map_or(PageSet::EMPTY, |cached| cached.pages)
    }

    /// Returns those of the pages of a chunk that are in bad memory.
    pub(crate) fn damaged(&self, chunk: u64) -> PageSet {
        let cached = self.cache.get(&chunk);
        cached.map_or(PageSet::EMPTY, |cached| cached.damaged)
    }

    /// Returns the reads of a chunk that bring some of these pages.
    fn reads_of(
        &self,
        chunk: u64,
        gen: Generation,
        pages: PageSet,
    ) -> impl Iterator<Item = &Read> + '_ {
        let is_it = move |read: &&Read| {
            let is_seen = read.has_begun && read.chunk == chunk && read.gen == gen;
            is_seen && !read.pages.is_disjoint(pages)
        };
        self.reads.values().filter(is_it)
    }

    fn lane_of(&self, read: &Read) -> Option<&Lane> {
        self.lanes.get(read.lane?)
    }

    /// Returns the pages that reads are about to bring which do not wait for this node.
    pub(crate) fn coming(
        &self,
        chunk: u64,
        gen: Generation,
        pages: PageSet,
        but: NodeId,
    ) -> PageSet {
        let waits = |read: &Read| self.lane_of(read).and_then(|lane| lane.holder) == Some(but);
        let reads = self.reads_of(chunk, gen, pages);
        let others = reads.filter(|read| !waits(read));
        others.fold(PageSet::EMPTY, |all, read| all.union(read.pages))
    }

    /// Returns the number of nodes between this one and a file server, for pages that it is
    /// fetching.
    pub(crate) fn depth_of(&self, chunk: u64, gen: Generation, pages: PageSet) -> u8 {
        let depth = |read: &Read| {
            let lane = self.lane_of(read).filter(|lane| lane.holder.is_some());
            lane.map_or(0, |lane| lane.told_depth.saturating_add(1))
        };
        self.reads_of(chunk, gen, pages)
            .map(depth)
            .max()
            .unwrap_or(0)
    }

    /// Puts pages into the cache; the chunk that was used least lately makes room.
    pub(crate) fn keep(&mut self, chunk: u64, gen: Generation, pages: PageSet, room: usize) {
        self.used += 1;
        let used = self.used;
        let cached = self.cache.entry(chunk).or_insert(Cached {
            gen,
            pages: PageSet::EMPTY,
            damaged: PageSet::EMPTY,
            used,
        });
        if cached.gen != gen {
            (cached.gen, cached.pages) = (gen, PageSet::EMPTY);
        }
        cached.damaged = cached.damaged.difference(pages);
        (cached.pages, cached.used) = (cached.pages.union(pages), used);
        if room == 0 {
            return;
        }
        let all: usize = self.cache.values().map(|cached| cached.pages.len()).sum();
        if all > 256 * room {
            let oldest = self.cache.iter().min_by_key(|(_, c)| c.used);
            if let Some(oldest) = oldest.map(|(chunk, _)| *chunk) {
                self.cache.remove(&oldest);
            }
        }
    }
}
