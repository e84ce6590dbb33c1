// SPDX-License-Identifier: GPL-2.0

//! The invariants: the application's view of the disk, and the ownership of chunks and requests.

use std::{
    collections::BTreeSet,
    fmt, //
};

/// The rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An acknowledged write is not on the disk, or was overwritten by an older one.
    LostWrite,
    /// A read returned data that were never written, or were overwritten.
    WrongRead,
    /// A write put another request's data on the disk.
    ForeignData,
    /// A response ended another request.
    WrongReply,
    /// A chunk is used by two requests at once.
    ChunkTwice,
    /// A request ended twice.
    DoneTwice,
    /// The server rejected a valid request.
    Refused,
    /// A path was tried twice for one request.
    TriedTwice,
    /// A lost request was sent again too often.
    TooOften,
    /// An acknowledged write is lost with a cache, and a later flush has succeeded.
    SilentLoss,
    /// A request reached another device.
    WrongDevice,
    /// A device that the server has closed for a client is written by it.
    FenceBroken,
    /// A client's request disturbs another client.
    OtherClient,
    /// The server has forgotten to answer a request.
    Unanswered,
    /// A send queue holds more than it has room for.
    QueueFull,
    /// A client used a key that is not valid on a path that works.
    BadKey,
    /// A path was closed although attempts were left.
    GivenUpEarly,
    /// After the faults stopped, a part did not recover, or leaks.
    Stuck,
}

/// A violation: its kind and details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind.
    pub kind: Kind,
    /// The details, as text.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

/// The application's knowledge of one block.
#[derive(Debug, Default)]
struct Block {
    /// The last acknowledged write.
    acked: u64,
    /// Writes that ended with an error and that the server may still have: they may be on the disk,
    /// now or later.
    failed: BTreeSet<u64>,
    /// A write in flight.
    writing: Option<u64>,
    /// The contents that a read in flight may return.
    before: BTreeSet<u64>,
    /// Durable: a power failure leaves it, or a later one.
    floor: u64,
    /// Executed after that, in this order: a power failure may leave any of them.
    applied: Vec<u64>,
    /// Acknowledged after that, in this order, with the writers.
    since: Vec<(u64, usize)>,
    /// The write in flight was executed, and lost with a cache before its answer has come.
    perished: bool,
    /// Acknowledged to a client, and lost with a cache; no flush of the client has failed since.
    lost: Option<(u64, usize)>,
}

impl Block {
    /// An acknowledged write is durable.
    fn set_floor(&mut self, request: u64) {
        // Otherwise a power failure, or a later write, has made it meaningless.
        if let Some(place) = self.since.iter().position(|(r, _)| *r == request) {
            self.since.drain(..=place);
            self.floor = request;
            if let Some(place) = self.applied.iter().position(|r| *r == request) {
                self.applied.drain(..=place);
            }
        }
    }
}

/// The end of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The write is done, for this client.
    Done(usize),
    /// The write has failed; the server may have it.
    Unknown,
    /// The write has failed; it was never sent.
    Never,
}

/// The checks' memory.
#[derive(Debug)]
pub(crate) struct Check {
    blocks: Vec<Block>,
    done: BTreeSet<u64>,
    pub(crate) violation: Option<Violation>,
}

impl Check {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            done: BTreeSet::new(),
            violation: None,
        }
    }

    /// Only the first violation counts, as later ones are consequences.
    pub(crate) fn fail(&mut self, kind: Kind, what: String) {
        self.violation.get_or_insert(Violation { kind, what });
    }

    /// Requires `holds`.
    pub(crate) fn require(&mut self, holds: bool, kind: Kind, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(kind, what());
        }
    }

    pub(crate) fn read_begins(&mut self, block: usize) {
        let known = &mut self.blocks[block];
        known.before.clone_from(&known.failed);
        known.before.insert(known.acked);
    }

    /// Checks the end of a read: it returned the content at its start, or a later one.
    pub(crate) fn read_ends(&mut self, block: usize, content: u64) {
        let before = std::mem::take(&mut self.blocks[block].before);
        if !before.contains(&content) {
            self.content(block, content, Kind::WrongRead);
        }
    }

    pub(crate) fn write_begins(&mut self, block: usize, request: u64) {
        self.blocks[block].writing = Some(request);
    }

    /// Counts the final end of a request.
    pub(crate) fn ends(&mut self, request: u64) {
        let first = self.done.insert(request);
        self.require(first, Kind::DoneTwice, || {
            format!("request {request} ended twice")
        });
    }

    /// Handles the end of a write; `content` is that of the disk.
    pub(crate) fn write_ends(&mut self, block: usize, request: u64, end: End, content: u64) {
        let known = &mut self.blocks[block];
        known.writing = None;
        let has_perished = std::mem::take(&mut known.perished);
        match end {
            End::Done(client) if has_perished => known.lost = Some((request, client)),
            End::Done(client) => {
                known.acked = request;
                known.since.push((request, client));
                known.lost = None;
            }
            End::Unknown => {
                known.failed.insert(request);
            }
            End::Never => {}
        }
        self.content(block, content, Kind::LostWrite);
    }

    /// Records that the client knows that the server has ended a failed write: if it was not
    /// executed by now, it must never be.
    pub(crate) fn write_settled(&mut self, block: usize, request: u64, content: u64) {
        let known = &mut self.blocks[block];
        if content != request {
            known.failed.remove(&request);
        } else if known.writing.is_none() {
            known.failed.remove(&request);
            known.acked = request;
            known.since.push((request, usize::MAX));
        }
        // Otherwise it replaced a write whose answer is in flight, which a failed one may.
    }

    /// Checks a block's content, on the disk or from a read.
    pub(crate) fn content(&mut self, block: usize, content: u64, kind: Kind) {
        let known = &self.blocks[block];
        let fits = content == known.acked
            || known.failed.contains(&content)
            || known.writing == Some(content);
        let (acked, failed) = (known.acked, &known.failed);
        if !fits {
            let what = format!(
                "block {block} holds {content}, acknowledged was {acked}, failed {failed:?}"
            );
            self.fail(kind, what);
        }
    }

    /// Handles an acknowledged write that is durable: there is no cache, or it was forced.
    pub(crate) fn durable(&mut self, block: usize, request: u64) {
        self.blocks[block].set_floor(request);
    }

    /// Handles a power failure; `content` is what it has left.
    pub(crate) fn power_lost(&mut self, block: usize, content: u64) {
        let known = &mut self.blocks[block];
        let place = |request| known.applied.iter().rposition(|r| *r == request);
        let left = place(content);
        if left.is_none() && content != known.floor {
            let (floor, applied) = (known.floor, &known.applied);
            let what = format!(
                "block {block} holds {content} after a power failure, durable was {floor}, \
                 executed later {applied:?}"
            );
            return self.fail(Kind::LostWrite, what);
        }
        let last = known.since.last().copied();
        let lost = last.filter(|(request, _)| place(*request) > left);
        known.lost = lost.or(known.lost);
        let writing = known.writing.filter(|w| place(*w) > left);
        known.perished |= writing.is_some();
        if known.writing != Some(content) && !known.failed.contains(&content) {
            known.acked = content;
        }
        known.floor = content;
        known.since.clear();
        known.applied.clear();
        known.before.insert(content);
    }

    /// Returns what a flush that is sent now must make durable: the last acknowledged writes, by
    /// blocks.
    pub(crate) fn flush_begins(&self, blocks: impl Iterator<Item = usize>) -> Vec<(usize, u64)> {
        let last = |block: usize| self.blocks.get(block).and_then(|b| b.since.last());
        blocks
            .filter_map(|block| last(block).map(|(request, _)| (block, *request)))
            .collect()
    }

    /// Handles the end of a flush of a client, with what it must have made durable and the blocks
    /// of its device.
    pub(crate) fn flush_ends(
        &mut self,
        client: usize,
        ok: bool,
        covered: &[(usize, u64)],
        blocks: impl Iterator<Item = usize>,
    ) {
        if !ok {
            // Whoever submits a flush learns that writes before it may be lost.
            for block in blocks {
                let lost = &mut self.blocks[block].lost;
                *lost = lost.filter(|(_, writer)| *writer != client);
            }
            return;
        }
        for (block, request) in covered {
            let known = &mut self.blocks[*block];
            if known.lost == Some((*request, client)) {
                let what = format!("r{request} of block {block} is lost, and a flush succeeded");
                return self.fail(Kind::SilentLoss, what);
            }
            known.set_floor(*request);
        }
    }

    /// Handles a write of the disk.
    pub(crate) fn applies(&mut self, block: usize, request: u64) {
        self.content(block, request, Kind::LostWrite);
        let known = &mut self.blocks[block];
        known.applied.push(request);
        if known.writing == Some(request) {
            known.perished = false;
        }
    }
}
