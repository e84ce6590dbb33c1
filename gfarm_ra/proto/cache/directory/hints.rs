// SPDX-License-Identifier: GPL-2.0

//! Hints, in 16 bytes each: a node that may have pages of a chunk. They are left of entries that
//! made room, and by notices of chunks that have none. A question makes an entry of them.

use super::{
    super::{
        super::identity::ContentId,
        address::{
            Group,
            NodeId, //
        },
        count,
        owner::{
            mixed,
            ChunkKey, //
        },
        pages::PageSet, //
    },
    HINT_SHARE, //
};

/// The pages of a bit.
const RUN: u8 = 16;

/// A node that may have pages of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    pub(super) node: NodeId,
    tag: u32,
    /// A bit for each run of pages of which it has any.
    runs: u16,
    pub(super) group: Group,
}

impl Hint {
    /// Makes a hint of a chunk with this tag.
    pub(super) fn new(tag: u32, node: NodeId, group: Group, pages: PageSet) -> Self {
        let mut runs = 0u16;
        for page in pages.iter() {
            runs |= 1u16.wrapping_shl(u32::from(page / RUN));
        }
        Self {
            node,
            tag,
            runs,
            group,
        }
    }

    /// Returns whether it tells of a node.
    pub fn is_of(&self, node: NodeId) -> bool {
        self.node == node
    }

    /// Returns the pages: those that the node has, and a few that it may not have.
    pub(super) fn pages(&self) -> PageSet {
        let runs = (0u8..16).filter(|run| self.runs & 1u16.wrapping_shl(u32::from(*run)) != 0);
        let runs = runs.map(|run| PageSet::range(run.wrapping_mul(RUN), RUN.into()));
        runs.fold(PageSet::EMPTY, PageSet::union)
    }
}

/// Returns the number by which a chunk is known in hints. Another one may have the same: who asks
/// for it is told by the node that it has nothing of it.
pub(super) const fn tag(file: ContentId, chunk: u64) -> u32 {
    let time = (file.mtime.sec as u64) ^ ((file.mtime.nsec as u64) << 32);
    let content = mixed(file.file.gen ^ mixed(time));
    // CAST: The upper half of it.
    (mixed(ChunkKey::new(file.file.inum, chunk).hash() ^ content) >> 32) as u32
}

/// The hints of a group, the last one first.
#[derive(Debug)]
pub(super) struct Hints<'a>(pub(super) &'a mut [Option<Hint>]);

impl Hints<'_> {
    /// Keeps a hint, with what is known of the same node and chunk. If there is no place it gets
    /// that of the oldest one of a node which has more than [`HINT_SHARE`], else of the oldest one.
    /// So a node that tells of everything takes the places of these, and has little more than a
    /// share while others use theirs.
    pub(super) fn keep(&mut self, hint: Hint) {
        let is_same = |old: &Hint| old.node == hint.node && old.tag == hint.tag;
        if let Some(old) = self.0.iter_mut().flatten().find(|old| is_same(old)) {
            old.runs |= hint.runs;
            old.group = hint.group;
            return;
        }
        let free = self.0.iter().position(Option::is_none);
        let Some(place) = free.or_else(|| self.victim()) else {
            return;
        };
        if let Some(newer) = self.0.get_mut(..=place) {
            newer.rotate_right(1);
        }
        if let Some(first) = self.0.first_mut() {
            *first = Some(hint);
        }
    }

    fn victim(&self) -> Option<usize> {
        let of = |node: NodeId| count(self.0.iter().flatten().filter(|hint| hint.is_of(node)));
        let has_many = |hint: &Option<Hint>| hint.is_some_and(|hint| of(hint.node) > HINT_SHARE);
        let mut from_the_oldest = (0..self.0.len()).rev();
        let oldest = from_the_oldest.find(|place| self.0.get(*place).is_some_and(has_many));
        oldest.or_else(|| self.0.len().checked_sub(1))
    }

    /// Takes a hint of a chunk out.
    pub(super) fn take(&mut self, tag: u32) -> Option<Hint> {
        let is_it = |hint: &&mut Option<Hint>| hint.is_some_and(|hint| hint.tag == tag);
        self.0.iter_mut().find(is_it)?.take()
    }
}
