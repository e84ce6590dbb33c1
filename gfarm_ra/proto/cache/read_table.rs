// SPDX-License-Identifier: GPL-2.0

//! The reads of this node: pages that it is about to have, for which it keeps the requests of
//! others.

use core::ops::DerefMut;

use super::{
    super::identity::ContentId,
    address::NodeId,
    pages::PageSet, //
};

/// The time after the end of a read in which its pages come to be seen in the page cache, in
/// microseconds.
pub const SETTLE_US: u64 = 50_000;

/// The number of a read in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadId(u64);

/// A read of pages of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ReadEntry {
    read_id: ReadId,
    file: ContentId,
    chunk: u64,
    pages: PageSet,
    /// The node for which it waits, if it does.
    from: Option<NodeId>,
    /// The number of nodes for which it waits in a row.
    depth: u8,
    /// The time at which it has ended, in microseconds; `None` before.
    over_us: Option<u64>,
}

/// The reads for which a request of another node waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The pages that are being read.
    pub pages: PageSet,
    /// The number of nodes for which this one waits in a row; 0 if for a file server only.
    pub depth: u8,
    /// The reads have ended: the pages are there within [`SETTLE_US`], or never.
    pub is_settling: bool,
}

/// The reads that are under way, in memory that the caller has: a place for each.
#[derive(Debug)]
pub struct ReadTable<S> {
    places: S,
    read_ids: u64,
}

impl<S: DerefMut<Target = [Option<ReadEntry>]>> ReadTable<S> {
    /// Begins without a read; all places are `None`.
    pub const fn new(places: S) -> Self {
        Self {
            places,
            read_ids: 0,
        }
    }

    /// Notes that pages of a content are going to be read; `None` if there is no place: then others
    /// are told that they are not here.
    pub fn begin(
        &mut self,
        file: ContentId,
        chunk: u64,
        pages: PageSet,
        now_us: u64,
    ) -> Option<ReadId> {
        let is_free = |place: &&mut Option<ReadEntry>| match place {
            None => true,
            Some(entry) => entry.is_forgotten(now_us),
        };
        let place = self.places.iter_mut().find(is_free)?;
        self.read_ids = self.read_ids.wrapping_add(1);
        let read_id = ReadId(self.read_ids);
        *place = Some(ReadEntry {
            read_id,
            file,
            chunk,
            pages,
            from: None,
            depth: 0,
            over_us: None,
        });
        Some(read_id)
    }

    fn with(&mut self, read_id: ReadId, work: impl FnOnce(&mut ReadEntry)) {
        let mut entries = self.places.iter_mut().flatten();
        if let Some(entry) = entries.find(|entry| entry.read_id == read_id) {
            work(entry);
        }
    }

    /// Adds pages of the same chunk to a read.
    pub fn extend(&mut self, read_id: ReadId, pages: PageSet) {
        self.with(read_id, |entry| {
            entry.pages = entry.pages.union(pages);
        });
    }

    /// Notes for which node a read waits, and for how many in a row that one says that it waits
    /// itself; `None` for a file server.
    pub fn waits(&mut self, read_id: ReadId, node: Option<(NodeId, u8)>) {
        self.with(read_id, |entry| {
            entry.from = node.map(|(node, _)| node);
            entry.depth = node.map_or(0, |(_, depth)| depth.saturating_add(1));
        });
    }

    /// Notes that a read has ended, with or without its pages.
    pub fn end(&mut self, read_id: ReadId, now_us: u64) {
        self.with(read_id, |entry| entry.over_us = Some(now_us));
    }

    /// Returns what a request of the node `asker` for pages of a chunk may wait for: not for what
    /// this node waits for at the asker.
    pub fn awaited(&self, file: ContentId, chunk: u64, asker: NodeId, now_us: u64) -> Awaited {
        let none = Awaited {
            pages: PageSet::EMPTY,
            depth: 0,
            is_settling: true,
        };
        let entries = self.places.iter().flatten().filter(|entry| {
            (entry.file, entry.chunk) == (file, chunk)
                && entry.from != Some(asker)
                && !entry.is_forgotten(now_us)
        });
        entries.fold(none, |all, entry| Awaited {
            pages: all.pages.union(entry.pages),
            depth: all.depth.max(entry.depth),
            is_settling: all.is_settling && entry.over_us.is_some(),
        })
    }
}

impl ReadEntry {
    fn is_forgotten(&self, now_us: u64) -> bool {
        self.over_us
            .is_some_and(|over_us| now_us.saturating_sub(over_us) >= SETTLE_US)
    }
}
