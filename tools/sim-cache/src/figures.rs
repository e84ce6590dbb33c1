// SPDX-License-Identifier: GPL-2.0

//! The figures of a run.

use crate::world::World;

/// The counts that are kept while a run goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) violation: Option<&'static str>,
    pub(crate) readers_left: usize,
    pub(crate) events: u64,
    pub(crate) pages: u64,
    pub(crate) gfsd_bytes: u64,
    pub(crate) gfsd_requests: u64,
    pub(crate) datagrams: u64,
    pub(crate) gossip: u64,
    pub(crate) overruns: u64,
    pub(crate) queue_max: usize,
    pub(crate) timeouts: u64,
    pub(crate) waits: u64,
    pub(crate) busy: u64,
    pub(crate) misses: u64,
    pub(crate) forwards: u64,
    pub(crate) cuts: u64,
    /// Pages that other nodes have given.
    pub(crate) from_nodes: u64,
    /// Pages that did not have their sums.
    pub(crate) damaged: u64,
    /// Bytes of pages that have left the sender's group.
    pub(crate) far_bytes: u64,
    /// Fragments that found no receive with their key.
    pub(crate) late: u64,
    /// Datagrams with a wrong code, and those that came twice or of no member.
    pub(crate) rejected: u64,
    pub(crate) discarded: u64,
    latencies_us: Vec<u32>,
}

impl Tally {
    /// Notes the first rule that was broken.
    pub(crate) fn violate(&mut self, what: &'static str) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn latency(&mut self, ns: u64) {
        self.latencies_us.push((ns / 1_000) as u32);
    }
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The rule that was broken.
    pub violation: Option<&'static str>,
    /// The number of nodes that have read their part.
    pub readers: usize,
    /// Bytes from file servers, in lengths of the file.
    pub gfsd_files: f64,
    /// The time from the first reader's start to the last one's end, in milliseconds.
    pub last_ms: f64,
    /// The time that the reader of the first node took, in milliseconds.
    pub first_node_ms: f64,
    /// Half of the reads took at most this long, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 reads took at most this long, in milliseconds.
    pub p99_ms: f64,
    /// The longest read, in milliseconds.
    pub max_ms: f64,
    /// The time that the slowest reader took, in times that of the mean one.
    pub unfairness: f64,
    /// The bytes that the busiest node has sent, in times the mean of all nodes.
    pub hottest: f64,
    /// The bytes that the busiest node has sent, in lengths of the file.
    pub hottest_files: f64,
    /// Requests and replies for a page that was read.
    pub datagrams_per_page: f64,
    /// Datagrams that found no receive.
    pub overruns: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Holders that did not have what they were asked for.
    pub misses: u64,
    /// Holders that were too busy.
    pub busy: u64,
    /// The part of pages that came from other nodes.
    pub from_nodes: f64,
    /// Bytes of pages that have left the group of the node that gave them, in lengths of the file.
    pub far_files: f64,
    /// Fragments that found no receive with their key.
    pub late: u64,
    /// Datagrams with a wrong code.
    pub rejected: u64,
    /// Requests and notices that came twice, or of no member.
    pub discarded: u64,
    /// Requests that went to a node that was not the owner.
    pub forwards: u64,
    /// Pages that did not have their sums.
    pub damaged: u64,
    /// Times that a node has taken itself for cut off from the others.
    pub cuts: u64,
    /// Datagrams between members about members.
    pub gossip: u64,
    /// Events of the simulation.
    pub events: u64,
}

fn quantile(sorted: &[u32], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    f64::from(sorted.get(index).copied().unwrap_or(0)) / 1_000.0
}

impl Outcome {
    pub(crate) fn of(world: World) -> Self {
        let tally = world.tally;
        let mut latencies = tally.latencies_us;
        latencies.sort_unstable();
        let times = world.nodes.iter().filter_map(|node| {
            let done_ns = node.done_ns?;
            Some((node.began_ns, done_ns))
        });
        let times: Vec<(u64, u64)> = times.collect();
        let first_ns = times.iter().map(|t| t.0).min().unwrap_or(0);
        let last_ns = times.iter().map(|t| t.1).max().unwrap_or(0);
        let first_node = &world.nodes[0];
        let first_node_ns = first_node
            .done_ns
            .map_or(0, |done_ns| done_ns - first_node.began_ns);
        let took = times.iter().map(|(from, to)| (to - from) as f64);
        let mean_took = took.clone().sum::<f64>() / times.len().max(1) as f64;
        let slowest = took.fold(0.0, f64::max);
        let sent = world.nodes.iter().map(|node| node.bytes_out as f64);
        let mean_sent = sent.clone().sum::<f64>() / world.nodes.len() as f64;
        let most_sent = sent.fold(0.0, f64::max);
        let file = world.s.file_bytes() as f64;
        Self {
            violation: tally.violation,
            readers: times.len(),
            gfsd_files: tally.gfsd_bytes as f64 / file,
            last_ms: (last_ns - first_ns) as f64 / 1e6,
            first_node_ms: first_node_ns as f64 / 1e6,
            p50_ms: quantile(&latencies, 0.5),
            p99_ms: quantile(&latencies, 0.99),
            max_ms: quantile(&latencies, 1.0),
            unfairness: slowest / mean_took.max(1.0),
            hottest: most_sent / mean_sent.max(1.0),
            hottest_files: most_sent / file,
            datagrams_per_page: tally.datagrams as f64 / tally.pages.max(1) as f64,
            overruns: tally.overruns,
            timeouts: tally.timeouts,
            misses: tally.misses,
            busy: tally.busy,
            from_nodes: tally.from_nodes as f64 / tally.pages.max(1) as f64,
            far_files: tally.far_bytes as f64 / file,
            late: tally.late,
            rejected: tally.rejected,
            discarded: tally.discarded,
            forwards: tally.forwards,
            damaged: tally.damaged,
            cuts: tally.cuts,
            gossip: tally.gossip,
            events: tally.events,
        }
    }
}
