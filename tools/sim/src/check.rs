// SPDX-License-Identifier: GPL-2.0

//! What must hold: the application's view of the disk, and who owns what.

use std::{
    collections::BTreeSet,
    fmt, //
};

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An acknowledged write is not on the disk, or was overwritten by an older one.
    LostWrite,
    /// A read returned what was never there, or no longer.
    WrongRead,
    /// A write put another request's data on the disk.
    ForeignData,
    /// A response went to a request that it is not for.
    WrongReply,
    /// A chunk is used by two requests at once.
    ChunkTwice,
    /// A request ended twice.
    DoneTwice,
    /// The server refused a request that was in order.
    Refused,
    /// A path was tried twice for one request.
    TriedTwice,
    /// A path was left although attempts were left.
    GivenUpEarly,
    /// Faults have stopped, and something did not come back, or leaks.
    Stuck,
}

/// A violation: what, and the particulars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind.
    pub kind: Kind,
    /// For people.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

/// What the application knows of one block.
#[derive(Debug, Default)]
struct Block {
    /// The last write that it was told is done.
    acked: u64,
    /// Writes that ended with an error and that the server may still have: they may be on the disk,
    /// or get there.
    failed: BTreeSet<u64>,
    /// A write under way.
    writing: Option<u64>,
    /// What a read under way may have found when it began.
    before: BTreeSet<u64>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is done.
    Done,
    /// With an error; the server may have it.
    Unknown,
    /// With an error; it never went out.
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

    /// The first violation counts: what follows is a consequence.
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

    /// A read has ended: it found what was there when it began, or what came meanwhile.
    pub(crate) fn read_ends(&mut self, block: usize, content: u64) {
        let before = std::mem::take(&mut self.blocks[block].before);
        if !before.contains(&content) {
            self.content(block, content, Kind::WrongRead);
        }
    }

    pub(crate) fn write_begins(&mut self, block: usize, request: u64) {
        self.blocks[block].writing = Some(request);
    }

    /// A request has ended, once and for all.
    pub(crate) fn ends(&mut self, request: u64) {
        let first = self.done.insert(request);
        self.require(first, Kind::DoneTwice, || {
            format!("request {request} ended twice")
        });
    }

    /// A write has ended; `content` is what is on the disk.
    pub(crate) fn write_ends(&mut self, block: usize, request: u64, end: End, content: u64) {
        let known = &mut self.blocks[block];
        known.writing = None;
        match end {
            End::Done => known.acked = request,
            End::Unknown => {
                known.failed.insert(request);
            }
            End::Never => {}
        }
        self.content(block, content, Kind::LostWrite);
    }

    /// The client is sure that the server has nothing any more of a write that failed: what it has
    /// not done by now, it must never do.
    pub(crate) fn write_settled(&mut self, block: usize, request: u64, content: u64) {
        let known = &mut self.blocks[block];
        if content != request {
            known.failed.remove(&request);
        } else if known.writing.is_none() {
            known.failed.remove(&request);
            known.acked = request;
        }
        // Else it came over a write whose answer is on its way, which a failed one may.
    }

    /// Checks a block's content, on the disk or as it was read.
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

    /// The disk takes a write.
    pub(crate) fn applies(&mut self, block: usize, request: u64) {
        self.content(block, request, Kind::LostWrite);
    }
}
