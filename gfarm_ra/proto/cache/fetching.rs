// SPDX-License-Identifier: GPL-2.0

//! What this node is reading: pages that it is about to have, for which it keeps the requests of
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

/// A read that was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// A read of pages of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    ticket: Ticket,
    file: ContentId,
    chunk: u64,
    pages: PageSet,
    /// The node for which it waits, if it does.
    from: Option<NodeId>,
    /// The number of nodes for which it waits in a row.
    depth: u8,
    /// When it has ended; `None` before.
    over_us: Option<u64>,
}

/// What a request of another node waits for.
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
pub struct Fetching<S> {
    places: S,
    tickets: u64,
}

impl<S: DerefMut<Target = [Option<Reading>]>> Fetching<S> {
    /// Begins without a read; all places are `None`.
    pub const fn new(places: S) -> Self {
        Self { places, tickets: 0 }
    }

    /// Notes that pages of a content are going to be read; `None` if there is no place: then others
    /// are told that they are not here.
    pub fn begin(
        &mut self,
        file: ContentId,
        chunk: u64,
        pages: PageSet,
        now_us: u64,
    ) -> Option<Ticket> {
        let is_free = |place: &&mut Option<Reading>| match place {
            None => true,
            Some(reading) => reading.is_forgotten(now_us),
        };
        let place = self.places.iter_mut().find(is_free)?;
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = Ticket(self.tickets);
        *place = Some(Reading {
            ticket,
            file,
            chunk,
            pages,
            from: None,
            depth: 0,
            over_us: None,
        });
        Some(ticket)
    }

    fn with(&mut self, ticket: Ticket, work: impl FnOnce(&mut Reading)) {
        let mut readings = self.places.iter_mut().flatten();
        if let Some(reading) = readings.find(|reading| reading.ticket == ticket) {
            work(reading);
        }
    }

    /// Adds pages of the same chunk to a read.
    pub fn extend(&mut self, ticket: Ticket, pages: PageSet) {
        self.with(ticket, |reading| {
            reading.pages = reading.pages.union(pages);
        });
    }

    /// Notes for which node a read waits, and for how many in a row that one says that it waits
    /// itself; `None` for a file server.
    pub fn waits(&mut self, ticket: Ticket, node: Option<(NodeId, u8)>) {
        self.with(ticket, |reading| {
            reading.from = node.map(|(node, _)| node);
            reading.depth = node.map_or(0, |(_, depth)| depth.saturating_add(1));
        });
    }

    /// Notes that a read has ended, with or without its pages.
    pub fn end(&mut self, ticket: Ticket, now_us: u64) {
        self.with(ticket, |reading| reading.over_us = Some(now_us));
    }

    /// Returns what a request of the node `asker` for pages of a chunk may wait for: not for what
    /// this node waits for at the asker.
    pub fn awaited(&self, file: ContentId, chunk: u64, asker: NodeId, now_us: u64) -> Awaited {
        let none = Awaited {
            pages: PageSet::EMPTY,
            depth: 0,
            is_settling: true,
        };
        let readings = self.places.iter().flatten().filter(|reading| {
            (reading.file, reading.chunk) == (file, chunk)
                && reading.from != Some(asker)
                && !reading.is_forgotten(now_us)
        });
        readings.fold(none, |all, reading| Awaited {
            pages: all.pages.union(reading.pages),
            depth: all.depth.max(reading.depth),
            is_settling: all.is_settling && reading.over_us.is_some(),
        })
    }
}

impl Reading {
    fn is_forgotten(&self, now_us: u64) -> bool {
        self.over_us
            .is_some_and(|over_us| now_us.saturating_sub(over_us) >= SETTLE_US)
    }
}
