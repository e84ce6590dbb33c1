// SPDX-License-Identifier: GPL-2.0

//! A node: its page cache, its reads, and what it knows of others.

use std::collections::{
    BTreeMap,
    VecDeque, //
};

use proto::gfarm::cache::{
    address::{
        Address,
        NodeId, //
    },
    directory::Entry,
    excluded::Excluded,
    members::Members,
    pages::PageSet,
    peer::Peer, //
};

use crate::message::{
    Generation,
    Request, //
};

/// Pages of one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) gen: Generation,
    pub(crate) pages: PageSet,
    pub(crate) used: u64,
}

/// Where a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It asks the owner.
    Owner(usize),
    /// It asks a holder for some of its pages.
    Holder(usize, PageSet),
    /// It asks a file server.
    FileServer,
}

/// A read of pages of one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) chunk: u64,
    pub(crate) gen: Generation,
    /// What was asked for, and what is not there yet.
    pub(crate) pages: PageSet,
    pub(crate) missing: PageSet,
    pub(crate) step: Step,
    pub(crate) began_ns: u64,
    /// The number of the last request, and how many of them count.
    pub(crate) attempt: u32,
    pub(crate) tries: u32,
    /// How many nodes are between the one that is asked and a file server, as it says.
    pub(crate) depth: u8,
    /// What has come for the last request, and whether its reply has come.
    pub(crate) arrived: PageSet,
    pub(crate) is_replied: bool,
    /// What the owner has told it to fetch.
    pub(crate) fetch: PageSet,
    /// The timer that is valid.
    pub(crate) round: u32,
    /// Datagrams in a row that were not answered.
    pub(crate) silent: u32,
    pub(crate) is_forwarded: bool,
    /// The owners that were asked.
    pub(crate) owners: Vec<usize>,
    pub(crate) excluded: Excluded,
}

/// A place in the file that the reader will read.
pub(crate) type Place = (u64, PageSet);

/// A node.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) address: Address,
    pub(crate) alive: bool,
    /// Events of an earlier life are void.
    pub(crate) life: u32,
    pub(crate) is_slow: bool,
    /// The generation that its reader has opened.
    pub(crate) gen: Generation,
    /// When the link is free, out and in, and when the processor is.
    pub(crate) out_free_ns: u64,
    pub(crate) in_free_ns: u64,
    pub(crate) cpu_free_ns: u64,
    /// Datagrams that were received and not looked at.
    pub(crate) queued: usize,
    pub(crate) cache: BTreeMap<u64, Cached>,
    pub(crate) used: u64,
    pub(crate) reads: BTreeMap<u64, Read>,
    /// Requests for pages that this node is fetching.
    pub(crate) waiters: Vec<Request>,
    /// A time is set at which they are told that this node lives.
    pub(crate) is_keeping: bool,
    pub(crate) directory: Vec<Entry>,
    pub(crate) members: Option<Members<Vec<Option<Peer>>>>,
    pub(crate) poll_ns: u64,
    /// What the owner keeps for others (see `Waiting::AtOwner`): the holder, since when, and the
    /// request.
    pub(crate) kept: Vec<(usize, u64, Request)>,
    pub(crate) complete: Vec<(u64, usize)>,
    /// What the reader still has to read, and how much at a time.
    pub(crate) plan: VecDeque<Place>,
    pub(crate) depth: usize,
    pub(crate) began_ns: u64,
    pub(crate) done_ns: Option<u64>,
    pub(crate) bytes_out: u64,
}

impl Node {
    /// Returns the pages of a generation that are in the cache.
    pub(crate) fn cached(&self, chunk: u64, gen: Generation) -> PageSet {
        let cached = self.cache.get(&chunk).filter(|cached| cached.gen == gen);
        cached.map_or(PageSet::EMPTY, |cached| cached.pages)
    }

    /// Returns the pages that reads are about to bring.
    pub(crate) fn coming(&self, chunk: u64, gen: Generation) -> PageSet {
        let reads = self.reads.values();
        let same = reads.filter(|read| read.chunk == chunk && read.gen == gen);
        same.fold(PageSet::EMPTY, |all, read| all.union(read.missing))
    }

    /// Returns the number of nodes between this one and a file server, for pages that it is
    /// fetching.
    pub(crate) fn depth_of(&self, chunk: u64, pages: PageSet) -> u8 {
        let reads = self.reads.values().filter(|read| read.chunk == chunk);
        let same = reads.filter(|read| !read.missing.is_disjoint(pages));
        let depth = |read: &Read| match read.step {
            Step::Holder(..) => read.depth.saturating_add(1),
            Step::Owner(_) | Step::FileServer => 0,
        };
        same.map(depth).max().unwrap_or(0)
    }

    /// Puts pages into the cache; the chunk that was used least lately makes room.
    pub(crate) fn keep(&mut self, chunk: u64, gen: Generation, pages: PageSet, room: usize) {
        self.used += 1;
        let used = self.used;
        let cached = self.cache.entry(chunk).or_insert(Cached {
            gen,
            pages: PageSet::EMPTY,
            used,
        });
        if cached.gen != gen {
            (cached.gen, cached.pages) = (gen, PageSet::EMPTY);
        }
        (cached.pages, cached.used) = (cached.pages.union(pages), used);
        let all: usize = self.cache.values().map(|cached| cached.pages.len()).sum();
        if room != 0 && all > 256 * room {
            let oldest = self.cache.iter().min_by_key(|(_, c)| c.used);
            if let Some(oldest) = oldest.map(|(chunk, _)| *chunk) {
                self.cache.remove(&oldest);
            }
        }
    }
}
