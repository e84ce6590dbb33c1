// SPDX-License-Identifier: GPL-2.0

//! The nodes that a read has asked without success.

use zerocopy::little_endian::U64;

use super::address::NodeId;

/// The number of nodes that a request can name as of no use.
pub const EXCLUDED_MAX: usize = 4;

/// The reason why a node was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The node has not answered.
    NoAnswer = 1,
    /// The node does not have the pages.
    NotHere = 2,
    /// The node has too much to do.
    Busy = 3,
}

impl Reason {
    const fn new(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::NoAnswer),
            2 => Some(Self::NotHere),
            3 => Some(Self::Busy),
            _ => None,
        }
    }
}

/// Nodes that were asked for the pages, and were of no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded([Option<(NodeId, Reason)>; EXCLUDED_MAX]);

impl Excluded {
    /// No node.
    pub const NONE: Self = Self([None; EXCLUDED_MAX]);

    /// Adds a node, or changes the reason of one that is there. If the list is full, the node that
    /// was added first leaves.
    pub fn add(&mut self, node: NodeId, reason: Reason) {
        let mut places = self.0.iter_mut();
        let place = places.find(|place| place.is_none_or(|(known, _)| known == node));
        if let Some(place) = place {
            *place = Some((node, reason));
            return;
        }
        self.0.rotate_left(1);
        if let Some(last) = self.0.last_mut() {
            *last = Some((node, reason));
        }
    }

    /// Takes the nodes out that were busy: they are asked again.
    pub fn forget_busy(&mut self) {
        let all = core::mem::take(self);
        let others = all.iter().filter(|(_, reason)| *reason != Reason::Busy);
        others.for_each(|(node, reason)| self.add(node, reason));
    }

    /// Returns the nodes.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Reason)> + '_ {
        self.0.iter().copied().flatten()
    }

    /// Returns why a node was of no use, if it is in the list.
    pub fn reason(&self, node: NodeId) -> Option<Reason> {
        let found = self.iter().find(|(known, _)| *known == node);
        found.map(|(_, reason)| reason)
    }

    pub(super) fn to_raw(self) -> ([U64; EXCLUDED_MAX], [u8; EXCLUDED_MAX]) {
        let node = |place: Option<(NodeId, Reason)>| place.map_or(0, |(node, _)| node.get());
        let reason = |place: Option<(NodeId, Reason)>| place.map_or(0, |(_, reason)| reason as u8);
        (self.0.map(node).map(U64::new), self.0.map(reason))
    }

    pub(super) fn from_raw(
        nodes: &[U64; EXCLUDED_MAX],
        reasons: &[u8; EXCLUDED_MAX],
    ) -> Option<Self> {
        let mut list = Self::NONE;
        for ((place, node), reason) in list.0.iter_mut().zip(nodes).zip(reasons) {
            *place = match (NodeId::new(node.get()), reason) {
                (None, 0) => None,
                (node, reason) => Some((node?, Reason::new(*reason)?)),
            };
        }
        let is_packed = list.0.is_sorted_by_key(|place| place.is_none());
        let mut nodes = list.0.iter().flatten();
        let mut is_different = true;
        while let Some((node, _)) = nodes.next() {
            is_different &= nodes.clone().all(|(later, _)| later != node);
        }
        (is_packed && is_different).then_some(list)
    }
}
