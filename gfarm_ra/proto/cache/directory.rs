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

use super::{
    super::identity::ContentId,
    address::{
        Group,
        NodeId, //
    },
    count,
    excluded::{
        Excluded,
        Reason, //
    },
    owner::ChunkKey,
    pages::PageSet,
    requester::READ_US_MAX, //
};

/// The number of requesters that a holder serves at a time, as far as the directory decides it.
pub const FANOUT: u8 = 2;

/// The number of holders that are remembered for a chunk. New ones replace those that have served
/// most, so a few suffice for any number of nodes.
pub const HOLDERS_MAX: usize = 24;

/// The number of entries among which a chunk has its place.
pub const WAYS: usize = 8;

/// The time after which what a holder was asked for is taken to be done, if it is not told, in
/// microseconds: a read that lasts longer goes to a file server.
pub const DONE_US: u64 = 2_000_000;

/// The time for which a requester whose place was taken is taken to be of an earlier wave than the
/// last one, in microseconds: less than the time after which a silent node is asked again.
const RECENT_US: u64 = 5_000;

/// The time for which a requester that is not known here may be one whose place was taken, in
/// microseconds: the longest read.
const FORGOTTEN_US: u64 = READ_US_MAX;

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

/// A node that has, or is fetching, pages of a chunk: those of one read, or of several that are
/// done.
#[derive(Clone, Copy, Debug)]
struct Holder {
    node: NodeId,
    group: Group,
    pages: PageSet,
    /// Its number in the entry: each holder that is noted has a larger one.
    order: u64,
    /// The number of the holder that it was sent to; [`NO_HOLDER`] if it reads from a file server
    /// or is done, [`OTHER_OWNERS`] if another owner may have sent it to one.
    parent: u64,
    /// The number of the wave that it is of: that of the holder that it was sent to, or a new one
    /// if it reads from a file server. Who waits has never a larger number than whom it waits for.
    wave: u64,
    /// The number of holders between it and a file server while it is fetching.
    depth: u8,
    /// The number of requesters that were sent to it, and are not done.
    serving: u8,
    /// The number that was sent to it in all.
    served: u32,
    /// The holder has told that it has the pages.
    is_done: bool,
    /// The time at which it was noted, or sent to a holder once more, in microseconds.
    since_us: u64,
    /// The time at which a requester was last sent to it, in microseconds.
    asked_us: u64,
}

/// The number of no holder.
const NO_HOLDER: u64 = 0;

/// The number of a holder that another owner knows.
const OTHER_OWNERS: u64 = u64::MAX;

impl Holder {
    fn is_done(&self, now_us: u64) -> bool {
        self.is_done || now_us.saturating_sub(self.since_us) >= DONE_US
    }

    fn serving(&self, now_us: u64) -> u8 {
        if now_us.saturating_sub(self.asked_us) >= DONE_US {
            0
        } else {
            self.serving
        }
    }

    fn depth(&self, now_us: u64) -> u8 {
        if self.is_done(now_us) {
            0
        } else {
            self.depth
        }
    }

    /// Orders holders that have equally many of the pages, for a requester of a group; the smallest
    /// is asked. Those of other groups come last, and of its own one that is full; then the tree is
    /// filled from its root, and each holder of a level in turn.
    fn rank(&self, group: Group, now_us: u64) -> (bool, bool, u8, u32, u64) {
        let (is_far, is_full) = (self.group != group, self.serving(now_us) >= FANOUT);
        (is_far, is_full, self.depth(now_us), self.served, self.order)
    }
}

/// The knowledge of a requester: those that wait for it are of its wave or of an earlier one.
#[derive(Clone, Copy, Debug)]
enum Own {
    /// The requester is new, so no other one waits for it.
    Nothing,
    /// The wave that it was of, and the number of the holder that it was sent to, see
    /// [`Holder::parent`]. It may ask once more because it was not told.
    Wave(u64, u64),
    /// The requester is not new, and its place may have been taken.
    Lost,
}

/// The directory entry of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    of: Option<(ContentId, u64)>,
    used_us: u64,
    orders: u64,
    /// The last wave, and when it began.
    wave: u64,
    wave_us: u64,
    /// The time at which a holder was last forgotten that was not done, in microseconds; `None` if
    /// none was.
    forgotten_us: Option<u64>,
    holders: [Option<Holder>; HOLDERS_MAX],
}

impl Entry {
    /// An entry without a chunk.
    pub const EMPTY: Self = Self {
        of: None,
        used_us: 0,
        orders: 0,
        wave: 0,
        wave_us: 0,
        forgotten_us: None,
        holders: [None; HOLDERS_MAX],
    };

    /// Finds the holder that stands for a read of a node.
    fn find(&mut self, node: NodeId, pages: PageSet) -> Option<&mut Holder> {
        let is_it = |h: &&mut Holder| h.node == node && !h.pages.is_disjoint(pages);
        self.holders.iter_mut().flatten().find(is_it)
    }

    /// Notes that a node does not have pages.
    fn take(&mut self, node: NodeId, pages: PageSet) {
        for holder in self.holders.iter_mut().flatten() {
            if holder.node == node {
                holder.pages = holder.pages.difference(pages);
            }
        }
    }

    /// Takes out what is known to be no longer there.
    fn correct(&mut self, question: &Question<'_>, now_us: u64, is_live: impl Fn(NodeId) -> bool) {
        for (node, reason) in question.excluded.iter() {
            if reason == Reason::NotHere {
                self.take(node, question.pages);
            }
        }
        for place in &mut self.holders {
            let Some(holder) = place else {
                continue;
            };
            if holder.pages.is_empty() || !is_live(holder.node) {
                if !holder.is_done(now_us) {
                    self.forgotten_us = Some(now_us);
                }
                *place = None;
            }
        }
    }

    /// Returns whether a requester that is not known here may be waited for by others, as its place
    /// was taken.
    fn may_have_forgotten(&self, now_us: u64) -> bool {
        let age_us = self.forgotten_us.map(|at_us| now_us.saturating_sub(at_us));
        age_us.is_some_and(|age_us| age_us < FORGOTTEN_US)
    }

    /// Returns whether a holder cannot be waiting for a requester of a wave; see [`Holder::wave`].
    fn is_ahead(&self, holder: &Holder, own: Own, now_us: u64) -> bool {
        // Another owner may have sent it to one that waits for the requester.
        let is_elsewhere = holder.parent == OTHER_OWNERS;
        let is_later = match own {
            Own::Nothing => return true,
            // The one that it was sent to before does not wait for it any more than then.
            Own::Wave(_, parent) if holder.order == parent => return true,
            Own::Wave(wave, _) => holder.wave > wave,
            Own::Lost => {
                let age_us = now_us.saturating_sub(self.wave_us);
                holder.wave == self.wave && age_us < RECENT_US
            }
        };
        holder.is_done(now_us) || (is_later && !is_elsewhere)
    }

    /// Chooses the holder to ask, and what no other node has.
    fn choose(&self, question: &Question<'_>, own: Own, now_us: u64) -> Direction {
        let (mut best, mut held) = (None, PageSet::EMPTY);
        for holder in self.holders.iter().flatten() {
            let pages = holder.pages.intersection(question.pages);
            let is_ahead = self.is_ahead(holder, own, now_us);
            if pages.is_empty() || !is_ahead || holder.node == question.requester {
                continue;
            }
            let reason = question.excluded.reason(holder.node);
            if matches!(reason, None | Some(Reason::Busy)) {
                held = held.union(pages);
            }
            let lacks = question.pages.len().wrapping_sub(pages.len());
            // Of two answers to one request either may be the one that has come: they agree.
            let is_other = match own {
                Own::Wave(_, parent) => holder.order != parent || holder.is_done(now_us),
                Own::Nothing | Own::Lost => true,
            };
            let rank = (lacks, is_other, holder.rank(question.group, now_us));
            if reason.is_none() && best.is_none_or(|(other, _, _)| rank < other) {
                best = Some((rank, holder.node, pages));
            }
        }
        Direction {
            from: best.map(|(_, node, pages)| (node, pages)),
            fetch: question.pages.difference(held),
        }
    }

    /// Notes that what a node was sent to another for is done, or of no use.
    fn release(&mut self, node: NodeId, pages: PageSet) {
        let mut holders = self.holders.iter_mut().flatten();
        let is_it = |h: &&mut Holder| h.node == node && !h.is_done && !h.pages.is_disjoint(pages);
        let Some(holder) = holders.find(is_it) else {
            return;
        };
        let parent = core::mem::replace(&mut holder.parent, NO_HOLDER);
        let mut holders = self.holders.iter_mut().flatten();
        if let Some(parent) = holders.find(|holder| holder.order == parent) {
            parent.serving = parent.serving.saturating_sub(1);
        }
    }

    /// Notes the requester as a holder of what it is about to have.
    fn note(&mut self, question: &Question<'_>, direction: &Direction, own: Own, now_us: u64) {
        let (node, asked) = (question.requester, direction.from);
        let given = asked.map_or(PageSet::EMPTY, |(_, pages)| pages);
        let pages = given.union(direction.fetch);
        if pages.is_empty() {
            return;
        }
        self.orders = self.orders.saturating_add(1);
        let order = self.orders;
        let least = match own {
            Own::Nothing => 0,
            Own::Wave(wave, _) => wave,
            // Those that wait for it may be of any.
            Own::Lost => self.wave,
        };
        let from = asked.and_then(|(node, pages)| self.find(node, pages));
        let (parent, wave, depth) = if let Some(holder) = from {
            holder.serving = holder.serving(now_us).saturating_add(1);
            holder.served = holder.served.saturating_add(1);
            holder.asked_us = now_us;
            // That of one that is done may be smaller.
            holder.wave = holder.wave.max(least);
            (
                holder.order,
                holder.wave,
                holder.depth(now_us).saturating_add(1),
            )
        } else {
            (self.wave, self.wave_us) = (order, now_us);
            let alone = if question.is_root {
                NO_HOLDER
            } else {
                OTHER_OWNERS
            };
            (alone, order, 0)
        };
        if let Some(holder) = self.find(node, pages) {
            holder.pages = holder.pages.union(pages);
            (holder.parent, holder.wave, holder.depth) = (parent, wave, depth);
            holder.since_us = now_us;
            return;
        }
        let holder = Holder {
            node,
            group: question.group,
            pages,
            order,
            parent,
            wave,
            depth,
            serving: 0,
            served: 0,
            is_done: false,
            since_us: now_us,
            asked_us: 0,
        };
        let replaced = self.place().and_then(|place| place.replace(holder));
        if replaced.is_some_and(|holder| !holder.is_done(now_us)) {
            self.forgotten_us = Some(now_us);
        }
    }

    /// Notes that a read is done; the holder becomes one with what its node had before.
    fn done(&mut self, node: NodeId, pages: PageSet) {
        for _ in 0..HOLDERS_MAX {
            let is_it = |h: &&Holder| h.node == node && !h.is_done && !h.pages.is_disjoint(pages);
            let Some(read) = self.holders.iter().flatten().find(is_it).copied() else {
                return;
            };
            self.release(node, read.pages);
            self.unite(&read);
        }
    }

    fn unite(&mut self, read: &Holder) {
        let mut holders = self.holders.iter_mut().flatten();
        let is_other = |h: &&mut Holder| h.node == read.node && h.is_done;
        let Some(other) = holders.find(is_other) else {
            let is_read = |h: &&mut Holder| h.order == read.order;
            if let Some(holder) = self.holders.iter_mut().flatten().find(is_read) {
                holder.is_done = true;
            }
            return;
        };
        other.pages = other.pages.union(read.pages);
        other.serving = other.serving.saturating_add(read.serving);
        other.served = other.served.saturating_add(read.served);
        other.asked_us = other.asked_us.max(read.asked_us);
        other.wave = other.wave.max(read.wave);
        let remains = other.order;
        for place in &mut self.holders {
            *place = place.filter(|holder| holder.order != read.order);
            if let Some(holder) = place.as_mut().filter(|h| h.parent == read.order) {
                holder.parent = remains;
            }
        }
    }

    /// Returns a free place, or that of the holder that has served most among those whose pages
    /// others have as well.
    fn place(&mut self) -> Option<&mut Option<Holder>> {
        let (mut once, mut twice) = (PageSet::EMPTY, PageSet::EMPTY);
        for holder in self.holders.iter().flatten() {
            twice = twice.union(once.intersection(holder.pages));
            once = once.union(holder.pages);
        }
        self.holders.iter_mut().max_by_key(|place| match place {
            None => (true, u32::MAX, u64::MAX),
            // Of those that have served alike, the one that was noted first.
            Some(holder) => {
                let is_spare = holder.pages.is_subset(twice);
                (is_spare, holder.served, u64::MAX.wrapping_sub(holder.order))
            }
        })
    }
}

/// The directory, in memory that the caller has: a number of entries, in groups of [`WAYS`].
#[derive(Debug)]
pub struct Directory<'a> {
    entries: &'a mut [Entry],
}

impl<'a> Directory<'a> {
    /// Uses these entries, which were [`Entry::EMPTY`] before the first use.
    pub const fn new(entries: &'a mut [Entry]) -> Self {
        Self { entries }
    }

    /// Returns the group of a chunk.
    fn group(&mut self, file: ContentId, chunk: u64) -> &mut [Entry] {
        let groups = self.entries.len().div_ceil(WAYS) as u64;
        let hash = ChunkKey::new(file.file.inum, chunk).hash();
        let group = hash.checked_rem(groups).unwrap_or(0);
        // CAST: Below the number of groups.
        let begin = (group as usize).saturating_mul(WAYS);
        let end = begin.saturating_add(WAYS).min(self.entries.len());
        self.entries.get_mut(begin..end).unwrap_or_default()
    }

    /// Finds the entry of a chunk, or gives it the one whose chunk was asked for least lately.
    fn entry(&mut self, file: ContentId, chunk: u64, now_us: u64) -> Option<&mut Entry> {
        let of = Some((file, chunk));
        let entry = self
            .group(file, chunk)
            .iter_mut()
            .max_by_key(|e| (e.of == of, e.of.is_none(), u64::MAX.wrapping_sub(e.used_us)))?;
        if entry.of != of {
            *entry = Entry::EMPTY;
            entry.of = of;
        }
        entry.used_us = now_us;
        Some(entry)
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
        let Some(entry) = self.entry(question.file, question.chunk, now_us) else {
            return Direction {
                from: None,
                fetch: question.pages,
            };
        };
        entry.correct(question, now_us, is_live);
        let (requester, pages) = (question.requester, question.pages);
        let known = entry.find(requester, pages).copied();
        entry.release(requester, pages);
        let own = match known {
            Some(holder) => {
                if holder.is_done(now_us) {
                    // It has not any more what it had.
                    entry.take(requester, pages);
                }
                Own::Wave(holder.wave, holder.parent)
            }
            None if question.is_retry && entry.may_have_forgotten(now_us) => Own::Lost,
            None => Own::Nothing,
        };
        let direction = entry.choose(question, own, now_us);
        entry.note(question, &direction, own, now_us);
        direction
    }

    /// Takes the word of a node that its read of `pages` is over, and it has them. What the
    /// directory does not know it does not learn by this.
    pub fn done(&mut self, node: NodeId, file: ContentId, chunk: u64, pages: PageSet) {
        let of = Some((file, chunk));
        let mut entries = self.group(file, chunk).iter_mut();
        if let Some(entry) = entries.find(|entry| entry.of == of) {
            entry.done(node, pages);
        }
    }

    /// Returns the number of chunks that have an entry.
    pub fn chunks(&self) -> usize {
        count(self.entries.iter().filter(|e| e.of.is_some()))
    }
}
