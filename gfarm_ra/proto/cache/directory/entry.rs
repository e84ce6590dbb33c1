// SPDX-License-Identifier: GPL-2.0

//! The entry of a chunk, and whom it sends a requester to.

use super::{
    super::{
        address::{
            Group,
            NodeId, //
        },
        excluded::Reason,
        pages::PageSet,
        requester::READ_US_MAX, //
    },
    holders::{
        Holder,
        Holders,
        NO_HOLDER,
        OTHER_OWNERS, //
    },
    Direction,
    Place,
    Question,
    HOLDERS_MAX, //
};

/// The time for which a requester whose place was taken is taken to be of an earlier wave than the
/// last one, in microseconds: less than the time after which a silent node is asked again.
const RECENT_US: u64 = 5_000;

/// The time for which a requester that is not known here may be one whose place was taken, in
/// microseconds: the longest read.
const FORGOTTEN_US: u64 = READ_US_MAX;

/// The knowledge of a requester: those that wait for it are of its wave or of an earlier one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// The requester is new, so no other one waits for it.
    Nothing,
    /// The wave that it was of, and the number of the holder that it was sent to, see
    /// [`Holder::parent`]. It may ask once more because it was not told.
    Wave(u64, u64),
    /// The requester is not new, and its place may have been taken.
    Lost,
}

/// The directory entry of a chunk, without its holders.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub(super) of: Option<Place>,
    pub(super) used_us: u64,
    orders: u64,
    /// The last wave, and when it began.
    wave: u64,
    wave_us: u64,
    /// The time at which a holder was last forgotten that was not done, in microseconds; `None` if
    /// none was.
    pub(super) forgotten_us: Option<u64>,
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
    };
}

/// An entry with its holders.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    pub(super) entry: &'a mut Entry,
    pub(super) holders: Holders<'a>,
}

impl Chunk<'_> {
    /// Finds the holder that stands for a read of a node.
    fn find(&mut self, node: NodeId, pages: PageSet) -> Option<&mut Holder> {
        self.holders
            .find(|h| h.node == node && !h.pages.is_disjoint(pages))
    }

    /// Notes that a node does not have pages.
    fn take(&mut self, node: NodeId, pages: PageSet) {
        for holder in self.holders.iter_mut() {
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
        let forgotten_us = &mut self.entry.forgotten_us;
        self.holders.remove(|holder| {
            let is_gone = holder.pages.is_empty() || !is_live(holder.node);
            if is_gone && !holder.is_done(now_us) {
                *forgotten_us = Some(now_us);
            }
            is_gone
        });
    }

    /// Decides whom a requester asks, and notes it as a holder. Returns the holder whose place it
    /// got as well.
    pub(super) fn direct(
        &mut self,
        question: &Question<'_>,
        now_us: u64,
        is_live: impl Fn(NodeId) -> bool,
    ) -> (Direction, Option<Holder>) {
        self.correct(question, now_us, is_live);
        let (requester, pages) = (question.requester, question.pages);
        let known = self.find(requester, pages).copied();
        self.release(requester, pages);
        let own = match known {
            Some(holder) => {
                if holder.is_done(now_us) {
                    // It has not any more what it had.
                    self.take(requester, pages);
                }
                Own::Wave(holder.wave, holder.parent)
            }
            None if question.is_retry && self.may_have_forgotten(now_us) => Own::Lost,
            None => Own::Nothing,
        };
        let direction = self.choose(question, own, now_us);
        let replaced = self.note(question, &direction, own, now_us);
        (direction, replaced)
    }

    /// Returns whether a requester that is not known here may be waited for by others, as its place
    /// was taken.
    fn may_have_forgotten(&self, now_us: u64) -> bool {
        let age_us = |at_us| now_us.saturating_sub(at_us);
        let age_us = self.entry.forgotten_us.map(age_us);
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
                let age_us = now_us.saturating_sub(self.entry.wave_us);
                holder.wave == self.entry.wave && age_us < RECENT_US
            }
        };
        holder.is_done(now_us) || (is_later && !is_elsewhere)
    }

    /// Chooses the holder to ask, and what no other node has.
    fn choose(&self, question: &Question<'_>, own: Own, now_us: u64) -> Direction {
        let (mut best, mut held) = (None, PageSet::EMPTY);
        for holder in self.holders.iter() {
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
        let is_it = |h: &Holder| h.node == node && !h.is_done && !h.pages.is_disjoint(pages);
        let Some(holder) = self.holders.find(is_it) else {
            return;
        };
        let parent = core::mem::replace(&mut holder.parent, NO_HOLDER);
        if let Some(parent) = self.holders.find(|holder| holder.order == parent) {
            parent.serving = parent.serving.saturating_sub(1);
        }
    }

    /// Notes the requester as a holder of what it is about to have. Returns the holder whose place
    /// it got.
    fn note(
        &mut self,
        question: &Question<'_>,
        direction: &Direction,
        own: Own,
        now_us: u64,
    ) -> Option<Holder> {
        let (node, asked) = (question.requester, direction.from);
        let given = asked.map_or(PageSet::EMPTY, |(_, pages)| pages);
        let pages = given.union(direction.fetch);
        if pages.is_empty() {
            return None;
        }
        let order = self.next_order();
        let least = match own {
            Own::Nothing => 0,
            Own::Wave(wave, _) => wave,
            // Those that wait for it may be of any.
            Own::Lost => self.entry.wave,
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
            (self.entry.wave, self.entry.wave_us) = (order, now_us);
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
            return None;
        }
        self.holders.put(Holder {
            parent,
            wave,
            depth,
            since_us: now_us,
            ..self.holder(node, question.group, pages, order)
        })
    }

    fn next_order(&mut self) -> u64 {
        self.entry.orders = self.entry.orders.saturating_add(1);
        self.entry.orders
    }

    /// Returns a holder that is new here.
    fn holder(&self, node: NodeId, group: Group, pages: PageSet, order: u64) -> Holder {
        Holder {
            node,
            group,
            pages,
            order,
            way: self.holders.way(),
            parent: NO_HOLDER,
            wave: 0,
            depth: 0,
            serving: 0,
            served: 0,
            is_done: false,
            since_us: 0,
            asked_us: 0,
        }
    }

    /// Notes that a node has pages, of which the directory has not known, or not any more. Returns
    /// the holder whose place it got.
    pub(super) fn learn(&mut self, node: NodeId, group: Group, pages: PageSet) -> Option<Holder> {
        if let Some(holder) = self.holders.find(|h| h.node == node && h.is_done) {
            holder.pages = holder.pages.union(pages);
            return None;
        }
        let order = self.next_order();
        self.holders.offer(Holder {
            is_done: true,
            ..self.holder(node, group, pages, order)
        })
    }

    /// Notes that a read is done; the holder becomes one with what its node had before. Returns
    /// whether there was such a read.
    pub(super) fn done(&mut self, node: NodeId, pages: PageSet) -> bool {
        for number in 0..=HOLDERS_MAX {
            let is_it = |h: &Holder| h.node == node && !h.is_done && !h.pages.is_disjoint(pages);
            let Some(read) = self.holders.find(is_it).map(|read| *read) else {
                return number != 0;
            };
            self.release(node, read.pages);
            self.unite(&read);
        }
        true
    }

    fn unite(&mut self, read: &Holder) {
        let is_other = |h: &Holder| h.node == read.node && h.is_done;
        let Some(other) = self.holders.find(is_other) else {
            if let Some(holder) = self.holders.find(|h| h.order == read.order) {
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
        self.holders.remove(|holder| holder.order == read.order);
        for holder in self.holders.iter_mut() {
            if holder.parent == read.order {
                holder.parent = remains;
            }
        }
    }
}
