// SPDX-License-Identifier: GPL-2.0

//! Chooses the node that keeps the directory entry of a chunk: rendezvous hashing.
//!
//! Every node gives each (node, chunk) a number, and the node with the highest one is the owner. So
//! nodes with the same members agree without a word; a node that leaves gives each other one an
//! equal share of its chunks, and no other chunk has a new owner.
//!
//! A chunk has an owner in each group of nodes as well, by the same rule among these: its nodes ask
//! it, so that pages come from near. It answers what it can, and sends the first of them to the
//! owner of all. A group of many nodes has several such owners, each for a part of them.

use core::mem;

use super::{
    address::{
        Group,
        NodeId, //
    },
    excluded::EXCLUDED_MAX, //
};

/// A chunk of a file in any generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    inum: u64,
    chunk: u64,
}

impl ChunkKey {
    /// Takes the inode's number and the chunk's.
    pub const fn new(inum: u64, chunk: u64) -> Self {
        Self { inum, chunk }
    }

    /// Returns a number that spreads chunks evenly.
    pub const fn hash(self) -> u64 {
        mixed(mixed(self.inum ^ 0x9e37_79b9_7f4a_7c15) ^ self.chunk)
    }
}

/// The finaliser of MurmurHash3 with the constants of SplitMix64: a bijection in which each bit
/// depends on each. No secret is needed, as who may choose a node's number is trusted.
pub(super) const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The number of requesters that an owner is to have. A public queue pair has 128 receives, and
/// all nodes may ask at once.
const REQUESTERS: usize = 64;

/// Returns the number of parts in which so many nodes of a group ask for a chunk, a power of two.
pub const fn parts(nodes: usize) -> u64 {
    // CAST: The number of nodes fits.
    let least = (nodes as u64).div_ceil(REQUESTERS as u64);
    match least.checked_next_power_of_two() {
        Some(parts) => parts,
        // There are never so many nodes.
        None => least,
    }
}

/// The numbers of nodes that live, of each group.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    all: usize,
    of: [u16; Group::COUNT],
}

impl Population {
    /// No node.
    pub const NONE: Self = Self {
        all: 0,
        of: [0; Group::COUNT],
    };

    fn place(group: Group) -> usize {
        usize::from(group.get()).wrapping_sub(1)
    }

    /// Counts a node.
    pub fn add(&mut self, group: Group) {
        self.all = self.all.saturating_add(1);
        if let Some(of) = self.of.get_mut(Self::place(group)) {
            *of = of.saturating_add(1);
        }
    }

    /// Returns the number of all nodes.
    pub const fn all(&self) -> usize {
        self.all
    }

    /// Returns the number of nodes of a group.
    pub fn of(&self, group: Group) -> usize {
        let of = self.of.get(Self::place(group));
        of.copied().map_or(0, usize::from)
    }

    /// Returns the group among whose nodes a requester of it has its owner: `None` if all nodes are
    /// of this group.
    pub fn near(&self, group: Group) -> Option<Group> {
        (self.of(group) != self.all).then_some(group)
    }
}

/// The owners of a chunk for one requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// The node that the requester asks, of its group: each part of it has an owner of its own, so
    /// that no node is asked by all. With one group of one part it is the owner.
    pub near: NodeId,
    /// The node to which that one sends the requester for pages that no node of the part has.
    pub root: NodeId,
}

/// Returns the number that makes the order of nodes for a requester's part of its group, and the
/// one that makes that for all requesters. `parts` is a power of two, as [`parts`] returns it.
pub const fn hashes(chunk: ChunkKey, requester: NodeId, parts: u64) -> (u64, u64) {
    let root = chunk.hash();
    let part = mixed(requester.get()) & parts.wrapping_sub(1);
    let near = if part == 0 { root } else { mixed(root ^ part) };
    (near, root)
}

/// The number of nodes of a ranking: one more than a read excludes.
const RANKED: usize = EXCLUDED_MAX + 1;

/// The nodes with the highest numbers, of those that were offered: the first one that is not
/// excluded is the owner.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    hash: u64,
    best: [Option<(u64, NodeId)>; RANKED],
}

impl Ranking {
    /// Starts without a node. `hash` is one of [`hashes`].
    pub const fn new(hash: u64) -> Self {
        Self {
            hash,
            best: [None; RANKED],
        }
    }

    /// Returns the number that makes the order.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Offers a node. One that is offered again changes nothing.
    pub fn offer(&mut self, node: NodeId) {
        let mut offered = Some((mixed(self.hash ^ node.get()), node));
        for place in &mut self.best {
            if *place == offered {
                return;
            }
            // None is the lowest.
            if *place < offered {
                mem::swap(place, &mut offered);
            }
        }
    }

    /// Returns the first node that is not excluded; `None` if the ranking knows of none.
    pub fn first(&self, is_excluded: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let mut nodes = self.best.iter().flatten().map(|(_, node)| *node);
        nodes.find(|node| !is_excluded(*node))
    }
}
