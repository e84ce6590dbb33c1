// SPDX-License-Identifier: GPL-2.0

//! The scenario of a run: the machines, the readers, and what goes wrong.

use proto::gfarm::cache::requester::READ_US;

/// A microsecond in the nanoseconds of the simulation.
pub const US: u64 = 1_000;
/// A millisecond.
pub const MS: u64 = 1_000_000;
/// A second.
pub const S: u64 = 1_000_000_000;

/// The source of the readers' bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each from the file server.
    FileServer,
    /// The cooperative cache.
    Cache,
}

/// The order in which the readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The whole file from its beginning, with so many reads in flight.
    Sequential(usize),
    /// Reads of 16 pages in a row, so many, anywhere in the file, one after the other.
    Random(usize),
    /// Every so-manieth run of 32 pages, each node with another first one, two in flight.
    Strided(u64),
    /// Each node an equal share of the chunks, in any order, two in flight; then another one, so
    /// many times in all: as a training does with its data.
    Epochs(u64),
}

/// The workers that ask other nodes for the reads of a node. What these have not given is read by
/// one worker, in batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Askers {
    /// Each read has one.
    Each,
    /// One asks for one read after the other, and reads from the file server when it has asked for
    /// all that wait, or for a batch, as the first versions did.
    One,
}

/// A rule of the cache or of its driver that is left out, to see that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A holder gives pages of another generation than the one that was asked for.
    ServesOtherGenerations,
    /// A requester keeps pages although its file has another generation by now.
    KeepsOldPages,
    /// A requester has no timer.
    WaitsForEver,
    /// A requester takes the nth fragment that arrives for fragment n, as the driver of 2014 did.
    PlacesByArrival,
    /// A requester leaves fragments where they have arrived.
    LeavesFragments,
    /// Data queue pairs have the same key for all requests. Their tags alone tell what is late.
    TakesAnyKey,
    /// Data queue pairs have the same key, and the requests of each one the same tag.
    TakesAnyFragment,
    /// A requester does not know any more that its read has ended.
    ForgetsItsEnd,
    /// A node that is cut off from all others asks them nevertheless.
    AsksWhoIsSilent,
    /// A requester does not compare pages with their sums.
    TakesDamagedPages,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The seed of all that is random.
    pub seed: u64,
    /// The number of nodes, all of which read.
    pub nodes: usize,
    /// The length of the file, in chunks of 1 MiB.
    pub chunks: u64,
    /// The order in which they read.
    pub pattern: Pattern,
    /// The pages of one read of [`Pattern::Sequential`]: 256 or a part of it.
    pub read_pages: usize,
    /// The source of their bytes.
    pub source: Source,
    /// The workers that ask other nodes for them.
    pub askers: Askers,
    /// The time of a command to the firmware of an adapter, as the change of a key, in nanoseconds.
    pub command_ns: u64,
    /// The nodes start one after the other, with this pause in nanoseconds.
    pub stagger_ns: u64,
    /// The part of datagrams and fragments that are lost.
    pub loss: f64,
    /// The part of them that come twice.
    pub duplicate: f64,
    /// The part of them that others overtake.
    pub reorder: f64,
    /// The longest delay of these, in nanoseconds.
    pub late_ns: u64,
    /// The part of datagrams of public queue pairs in which a bit is changed.
    pub corrupt: f64,
    /// The length of a fragment, in bytes.
    pub fragment_len: u32,
    /// The bandwidth of a node, in and out each, in bytes a microsecond.
    pub node_bytes_per_us: u64,
    /// The bandwidth of all file servers together, in bytes a microsecond.
    pub gfsd_bytes_per_us: u64,
    /// The time that a read takes at a file server that has nothing else to do.
    pub gfsd_ns: u64,
    /// The time that a datagram is under way.
    pub latency_ns: u64,
    /// The time that a node takes for a datagram of its public queue pair.
    pub service_ns: u64,
    /// The receives of the public queue pair (`ib_num_rrpc`).
    pub receives: usize,
    /// The requests that a node serves or keeps at a time.
    pub serving: u16,
    /// The time after which a read goes to the file server in any case, in microseconds
    /// (`cc_wait_ms`).
    pub read_us: u64,
    /// Whether a node that is done with a read tells the owners.
    pub has_notices: bool,
    /// The page cache of a node, in chunks; 0 for one that has room for all.
    pub cache_chunks: usize,
    /// The part of the pages that go bad in the memory of a node when it has them.
    pub decay: f64,
    /// Whether pages are compared with the sums that their holders tell (`cc_verify`).
    pub verifies: bool,
    /// The directory of a node, in groups of 8 entries.
    pub directory_groups: usize,
    /// The part of the nodes that have a twentieth of the bandwidth, and answer 50 times as late.
    pub slow: f64,
    /// The number of nodes that do not answer any more when the readers start; the other nodes
    /// believe that they live.
    pub dead: usize,
    /// The number of nodes that answer no request, but are good members otherwise.
    pub silent: usize,
    /// The times from which and until which the network loses all that the first node sends, and
    /// all that is sent to it.
    pub away_ns: (u64, u64),
    /// The first node asks no other one.
    pub is_first_alone: bool,
    /// The part of the messages to the first node that a flood of others' datagrams keeps from its
    /// public queue pair.
    pub flood: f64,
    /// The part of the replies to the first node that is lost.
    pub unheard: f64,
    /// Nanoseconds by which the file servers answer the first node later than others.
    pub hung_ns: u64,
    /// A node dies, and a new one joins, this often; 0 for never.
    pub churn_ns: u64,
    /// The file is replaced by another content at this time; 0 for never.
    pub rewrite_ns: u64,
    /// The members are found, probed and told of by the messages of the cache; otherwise every node
    /// knows at once who lives.
    pub has_gossip: bool,
    /// The peers for which a node has room, with members; 0 for all.
    pub peers_max: usize,
    /// The parts of the network, such as racks: nodes are in each of them in turn.
    pub groups: usize,
    /// Whether the nodes know in which one each is.
    pub knows_groups: bool,
    /// The rule that is left out.
    pub mutation: Option<Mutation>,
}

impl Scenario {
    /// Readers of a 64 MiB file that all begin at once, without faults: nodes with 100 Gbit/s, file
    /// servers with 20 Gbit/s.
    pub const fn storm(nodes: usize) -> Self {
        Self {
            seed: 1,
            nodes,
            chunks: 64,
            pattern: Pattern::Sequential(4),
            read_pages: 256,
            source: Source::Cache,
            askers: Askers::Each,
            command_ns: 50 * US,
            stagger_ns: 0,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            late_ns: 100 * US,
            corrupt: 0.0,
            fragment_len: 4096,
            node_bytes_per_us: 12_500,
            gfsd_bytes_per_us: 2_500,
            gfsd_ns: 300 * US,
            latency_ns: 5 * US,
            service_ns: 3 * US,
            receives: 128,
            serving: 64,
            read_us: READ_US,
            has_notices: true,
            cache_chunks: 0,
            decay: 0.0,
            verifies: true,
            directory_groups: 8,
            slow: 0.0,
            dead: 0,
            silent: 0,
            away_ns: (0, 0),
            is_first_alone: false,
            flood: 0.0,
            unheard: 0.0,
            hung_ns: 0,
            churn_ns: 0,
            rewrite_ns: 0,
            has_gossip: false,
            peers_max: 0,
            groups: 1,
            knows_groups: true,
            mutation: None,
        }
    }

    /// Returns the length of the file, in bytes.
    pub const fn file_bytes(&self) -> u64 {
        self.chunks * 256 * 4096
    }
}
