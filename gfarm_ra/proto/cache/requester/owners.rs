// SPDX-License-Identifier: GPL-2.0

//! The nodes that a read has asked as owners of its chunk.

use super::super::address::NodeId;

/// The number of owners that are remembered: there are two, and others if these are lost.
pub const OWNERS_MAX: usize = 4;

/// The owners that were asked, the last four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners([Option<NodeId>; OWNERS_MAX]);

impl Owners {
    /// No node.
    pub const NONE: Self = Self([None; OWNERS_MAX]);

    /// Adds a node, unless it is there. If the list is full, the node that was added first leaves.
    pub(super) fn add(&mut self, node: NodeId) {
        if self.contains(node) {
            return;
        }
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(node);
            return;
        }
        self.0.rotate_left(1);
        if let Some(last) = self.0.last_mut() {
            *last = Some(node);
        }
    }

    /// Adds the nodes of another list.
    pub fn add_all(&mut self, others: &Self) {
        others.iter().for_each(|node| self.add(node));
    }

    /// Returns whether a node is there.
    pub fn contains(&self, node: NodeId) -> bool {
        self.iter().any(|known| known == node)
    }

    /// Returns the nodes, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().copied().flatten()
    }
}
