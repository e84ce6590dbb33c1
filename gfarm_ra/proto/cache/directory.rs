// SPDX-License-Identifier: GPL-2.0

//! The directory: which nodes have, or are fetching, the pages of the chunks that a node owns.
//!
//! The owner tells each requester whom to ask, and notes it as a holder at once: the next requester
//! is sent to it, and waits there until the pages have come. So any number of nodes that begin to
//! read together make a tree of [`FANOUT`] branches, in the order in which they come, and one of
//! them reads each page from a file server. A node that is done tells the owner, which so knows who
//! is still waiting, and for whom.
//!
//! The directory is never more than a hint. A holder gives only what it has; a requester that gets
//! nothing says so, is sent elsewhere, and in the end reads from a file server.

mod entry;
mod hints;
mod holders;

use super::{
    super::identity::ContentId,
    address::{
        Group,
        NodeId, //
    },
    count,
    excluded::Excluded,
    owner::ChunkKey,
    pages::PageSet, //
};

use self::{
    entry::Chunk,
    hints::Hints,
    holders::Holders, //
};
pub use self::{
    entry::Entry,
    hints::Hint,
    holders::Holder, //
};

/// The number of requesters that a holder serves at a time, as far as the directory decides it.
pub const FANOUT: u8 = 2;

/// The number of holders that are remembered for a chunk at most. New ones replace those that have
/// served most, so a few suffice for any number of nodes.
pub const HOLDERS_MAX: usize = 24;

/// The number of entries among which a chunk has its place.
pub const WAYS: usize = 8;

/// The time after which what a holder was asked for is taken to be done, if it is not told, in
/// microseconds: a read that lasts longer goes to a file server.
pub const DONE_US: u64 = 2_000_000;

/// The places for holders that the [`WAYS`] entries of a group have in common.
const PLACES: usize = 32;

/// The number of holders that an entry keeps, however many other chunks have.
const KEPT: usize = PLACES / WAYS;

/// The number of hints of a group.
const HINTS: usize = 64;

/// The number of hints of a group that a node keeps against all others: an eighth.
const HINT_SHARE: usize = HINTS / 8;

/// A request to an owner.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The node that asks.
    pub requester: NodeId,
    /// The part of the network that it is in.
    pub group: Group,
    /// The file and its content.
    pub file: ContentId,
    /// The chunk.
    pub chunk: u64,
    /// The pages, at least one.
    pub pages: PageSet,
    /// The owner was asked for these pages before by the same read, whether it has answered or not.
    pub is_retry: bool,
    /// Whether it is asked of the owner of all; otherwise what no holder has is asked for there.
    pub is_root: bool,
    /// Holders that are of no use to it.
    pub excluded: &'a Excluded,
}

/// The sources that a requester is sent to. Both sets are parts of the pages that were asked for,
/// and have none in common. What is in neither has a holder that cannot serve it now: it is to be
/// asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// The holder, and what it is to be asked for; not the requester, and not an empty set.
    pub from: Option<(NodeId, PageSet)>,
    /// The pages that no holder has: the requester reads them from a file server.
    pub fetch: PageSet,
}

/// The notice of a node that has pages.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    /// The node.
    pub node: NodeId,
    /// The part of the network that it is in.
    pub group: Group,
    /// The file and its content.
    pub file: ContentId,
    /// The chunk.
    pub chunk: u64,
    /// The pages of a read that is over.
    pub pages: PageSet,
}

/// A chunk of a content.
type Place = (ContentId, u64);

/// The length of a group, in bytes.
// CAST: A few thousand.
pub const GROUP_LEN: u64 = (WAYS * size_of::<Entry>()
    + PLACES * size_of::<Option<Holder>>()
    + HINTS * size_of::<Option<Hint>>()) as u64;

/// The memory of a node for each byte of its directory, unless the administrator sets its size. A
/// node whose memory is all page cache then remembers a chunk for each 128 KiB.
const SHARE: u64 = 2048;

/// The least and the most memory that it has so.
const LEN_BYTES_MIN: u64 = 1 << 20;
const LEN_BYTES_MAX: u64 = 256 << 20;

/// Returns the length of the directory of a node with so much memory, in bytes, if it is set to
/// `given_mib`; 0 is a share of the memory.
pub const fn len_bytes(given_mib: u32, memory_bytes: u64) -> u64 {
    // CAST: To a longer type.
    match (given_mib as u64) << 20 {
        0 if memory_bytes / SHARE < LEN_BYTES_MIN => LEN_BYTES_MIN,
        0 if memory_bytes / SHARE > LEN_BYTES_MAX => LEN_BYTES_MAX,
        0 => memory_bytes / SHARE,
        given => given,
    }
}

/// Returns the number of groups of entries for `len_bytes` of memory, at least one.
pub const fn groups(len_bytes: u64) -> usize {
    // CAST: What fits into memory is a `usize`.
    match (len_bytes / GROUP_LEN) as usize {
        0 => 1,
        groups => groups,
    }
}

/// The directory, in memory that the caller has: a number of groups of entries, with the places for
/// the holders of each group, and its hints.
///
/// The entries of a group have [`PLACES`] for holders in common, as most chunks have one or two,
/// and few have many. An entry that makes room leaves a hint, and so does a notice of a chunk
/// without an entry: a question makes an entry of them.
#[derive(Debug)]
pub struct Directory<'a> {
    entries: &'a mut [Entry],
    holders: &'a mut [Option<Holder>],
    hints: &'a mut [Option<Hint>],
}

/// The memory of a group.
struct Set<'a> {
    entries: &'a mut [Entry],
    holders: &'a mut [Option<Holder>],
    hints: Hints<'a>,
}

impl<'a> Directory<'a> {
    /// The number of entries, holders and hints of a group, which has nothing before its first use.
    pub const GROUP: (usize, usize, usize) = (WAYS, PLACES, HINTS);

    /// Uses this memory, of so many groups: [`Entry::EMPTY`] before the first use, and no holders
    /// and hints.
    pub const fn new(
        entries: &'a mut [Entry],
        holders: &'a mut [Option<Holder>],
        hints: &'a mut [Option<Hint>],
    ) -> Self {
        Self {
            entries,
            holders,
            hints,
        }
    }

    /// Returns the group of a chunk.
    fn set(&mut self, file: ContentId, chunk: u64) -> Set<'_> {
        let groups = self.entries.len().div_ceil(WAYS) as u64;
        let hash = ChunkKey::new(file.file.inum, chunk).hash();
        // CAST: Below the number of groups.
        let group = hash.checked_rem(groups).unwrap_or(0) as usize;
        Set {
            entries: part(self.entries, group, WAYS),
            holders: part(self.holders, group, PLACES),
            hints: Hints(part(self.hints, group, HINTS)),
        }
    }

    /// Decides whom a requester asks, and notes it as a holder.
    ///
    /// `is_live` tells whether a node is a member that answers; holders that are not are forgotten.
    pub fn direct(
        &mut self,
        question: &Question<'_>,
        now_us: u64,
        is_live: impl Fn(NodeId) -> bool,
    ) -> Direction {
        let mut set = self.set(question.file, question.chunk);
        let Some(mut chunk) = set.make((question.file, question.chunk), now_us) else {
            return Direction {
                from: None,
                fetch: question.pages,
            };
        };
        let (direction, replaced) = chunk.direct(question, now_us, is_live);
        set.replaced(replaced, now_us);
        direction
    }

    /// Takes the word of a node that its read of pages is over, and it has them. What the directory
    /// does not know it learns by this, if there is room, or that of what the same node has told.
    pub fn done(&mut self, notice: &Notice, now_us: u64) {
        let Notice {
            node, group, pages, ..
        } = *notice;
        let mut set = self.set(notice.file, notice.chunk);
        let replaced = match set.find((notice.file, notice.chunk)) {
            Some(mut chunk) => match chunk.done(node, pages) {
                true => None,
                false => chunk.learn(node, group, pages),
            },
            None => {
                let tag = hints::tag(notice.file, notice.chunk);
                set.hints.keep(Hint::new(tag, node, group, pages));
                None
            }
        };
        set.replaced(replaced, now_us);
    }

    /// Returns the number of chunks that have an entry.
    pub fn chunks(&self) -> usize {
        count(self.entries.iter().filter(|e| e.of.is_some()))
    }
}

/// Returns the part of a group of memory of which each has `len`.
fn part<T>(memory: &mut [T], group: usize, len: usize) -> &mut [T] {
    let begin = group.saturating_mul(len).min(memory.len());
    let end = begin.saturating_add(len).min(memory.len());
    memory.get_mut(begin..end).unwrap_or_default()
}

impl Set<'_> {
    fn chunk(&mut self, way: usize) -> Option<Chunk<'_>> {
        let number = u8::try_from(way).ok()?;
        Some(Chunk {
            entry: self.entries.get_mut(way)?,
            holders: Holders::of(self.holders, number),
        })
    }

    /// Finds the entry of a chunk.
    fn find(&mut self, of: Place) -> Option<Chunk<'_>> {
        let way = self.entries.iter().position(|e| e.of == Some(of))?;
        self.chunk(way)
    }

    /// Finds the entry of a chunk, or gives it the one whose chunk was asked for least lately.
    fn make(&mut self, of: Place, now_us: u64) -> Option<Chunk<'_>> {
        let entries = (0usize..).zip(self.entries.iter());
        let (way, found) = entries.max_by_key(|(_, e)| {
            let age = u64::MAX.wrapping_sub(e.used_us);
            (e.of == Some(of), e.of.is_none(), age)
        })?;
        if found.of != Some(of) {
            // Taken first: what makes room leaves a hint itself.
            let tag = hints::tag(of.0, of.1);
            let hints = [(); KEPT].map(|()| self.hints.take(tag));
            self.leave_hint(way, now_us);
            if let Some(entry) = self.entries.get_mut(way) {
                *entry = Entry::EMPTY;
                entry.of = Some(of);
            }
            for hint in hints.into_iter().flatten() {
                let (node, group, pages) = (hint.node, hint.group, hint.pages());
                let chunk = self.chunk(way);
                let replaced = chunk.and_then(|mut chunk| chunk.learn(node, group, pages));
                self.replaced(replaced, now_us);
            }
        }
        let chunk = self.chunk(way)?;
        chunk.entry.used_us = now_us;
        Some(chunk)
    }

    /// Forgets the holders of an entry. A hint remains of the one that has most pages, of equal
    /// ones the last: more would take the places of what other chunks have left.
    fn leave_hint(&mut self, way: usize, now_us: u64) {
        let Some(of) = self.entries.get(way).and_then(|e| e.of) else {
            return;
        };
        let Some(mut chunk) = self.chunk(way) else {
            return;
        };
        let done = chunk.holders.iter().filter(|h| h.is_done(now_us));
        let best = done.max_by_key(|h| (h.pages.len(), h.order)).copied();
        chunk.holders.remove(|_| true);
        if let Some(holder) = best {
            let (tag, pages) = (hints::tag(of.0, of.1), holder.pages);
            self.hints
                .keep(Hint::new(tag, holder.node, holder.group, pages));
        }
    }

    /// Takes note that a holder has lost its place.
    fn replaced(&mut self, holder: Option<Holder>, now_us: u64) {
        let Some(holder) = holder.filter(|holder| !holder.is_done(now_us)) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(usize::from(holder.way)) {
            entry.forgotten_us = Some(now_us);
        }
    }
}
