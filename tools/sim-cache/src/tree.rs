// SPDX-License-Identifier: GPL-2.0

//! A fixed tree of nodes, to compare with: each node asks its parent for whole files, and only the
//! root reads from a file server, as Copper does. All nodes live, all want the file, and nothing is
//! lost: in each other case the tree does worse, as a node has no other one to ask.

use crate::scenario::Scenario;

/// The figures of the tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tree {
    /// The time until the last node has the file, in milliseconds.
    pub last_ms: f64,
    /// The bytes that the busiest node has sent, in lengths of the file.
    pub hottest_files: f64,
}

/// Computes a tree in which each node has `branches` children. With `by_chunks` a node passes each
/// chunk on when it has it, otherwise the whole file.
pub fn tree(s: &Scenario, branches: usize, by_chunks: bool) -> Tree {
    let (parts, len) = if by_chunks {
        (s.chunks as usize, 1 << 20)
    } else {
        (1, s.file_bytes())
    };
    let wire_ns = len * 1_000 / s.node_bytes_per_us;
    let read_ns = len * 1_000 / s.gfsd_bytes_per_us;
    // When each node has each part; the parent of node n is (n - 1) / branches.
    let mut there: Vec<Vec<u64>> = Vec::with_capacity(s.nodes);
    there.push(
        (1..=parts as u64)
            .map(|part| part * read_ns + s.gfsd_ns)
            .collect(),
    );
    for parent in 0..s.nodes {
        let children = (parent * branches + 1..=(parent + 1) * branches).filter(|c| *c < s.nodes);
        let children = children.count();
        let mut has: Vec<Vec<u64>> = vec![Vec::with_capacity(parts); children];
        let mut free_ns = 0;
        for part_ns in &there[parent] {
            for child in &mut has {
                free_ns = free_ns.max(*part_ns) + wire_ns;
                child.push(free_ns + 2 * s.latency_ns);
            }
        }
        there.append(&mut has);
    }
    let last_ns = there.iter().filter_map(|parts| parts.last()).max();
    Tree {
        last_ms: *last_ns.unwrap_or(&0) as f64 / 1e6,
        hottest_files: branches.min(s.nodes - 1) as f64,
    }
}
