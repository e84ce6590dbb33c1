// SPDX-License-Identifier: GPL-2.0

//! The holders of a chunk, and the places that the chunks of a group have in common for them.

use super::{
    super::{
        address::{
            Group,
            NodeId, //
        },
        count,
        pages::PageSet, //
    },
    DONE_US,
    FANOUT,
    HOLDERS_MAX,
    KEPT,
    WAYS, //
};

/// A node that has, or is fetching, pages of a chunk: those of one read, or of several that are
/// done.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub(super) node: NodeId,
    pub(super) pages: PageSet,
    /// Its number in the entry: each holder that is noted has a larger one.
    pub(super) order: u64,
    /// The number of the holder that it was sent to; [`NO_HOLDER`] if it reads from a file server
    /// or is done, [`OTHER_OWNERS`] if another owner may have sent it to one.
    pub(super) parent: u64,
    /// The number of the wave that it is of: that of the holder that it was sent to, or a new one
    /// if it reads from a file server. Who waits has never a larger number than whom it waits for.
    pub(super) wave: u64,
    /// The time at which it was noted, or sent to a holder once more, in microseconds.
    pub(super) since_us: u64,
    /// The time at which a requester was last sent to it, in microseconds.
    pub(super) asked_us: u64,
    /// The number that was sent to it in all, up to the largest one of this type.
    pub(super) served: u16,
    pub(super) group: Group,
    /// The entry, by its place in the group of entries.
    pub(super) way: u8,
    /// The number of holders between it and a file server while it is fetching.
    pub(super) depth: u8,
    /// The number of requesters that were sent to it, and are not done.
    pub(super) serving: u8,
    /// The holder has told that it has the pages.
    pub(super) is_done: bool,
}

/// The number of no holder.
pub(super) const NO_HOLDER: u64 = 0;

/// The number of a holder that another owner knows.
pub(super) const OTHER_OWNERS: u64 = u64::MAX;

impl Holder {
    pub(super) fn is_done(&self, now_us: u64) -> bool {
        self.is_done || now_us.saturating_sub(self.since_us) >= DONE_US
    }

    pub(super) fn serving(&self, now_us: u64) -> u8 {
        if now_us.saturating_sub(self.asked_us) >= DONE_US {
            0
        } else {
            self.serving
        }
    }

    pub(super) fn depth(&self, now_us: u64) -> u8 {
        if self.is_done(now_us) {
            0
        } else {
            self.depth
        }
    }

    /// Orders holders that have equally many of the pages, for a requester of a group; the smallest
    /// is asked. Those of other groups come last, and of its own one that is full; then the tree is
    /// filled from its root, and each holder of a level in turn.
    pub(super) fn rank(&self, group: Group, now_us: u64) -> (bool, bool, u8, u16, u64) {
        let (is_far, is_full) = (self.group != group, self.serving(now_us) >= FANOUT);
        (is_far, is_full, self.depth(now_us), self.served, self.order)
    }
}

/// The holders of one entry: in places of its group, any of which may be any entry's.
#[derive(Debug)]
pub(super) struct Holders<'a> {
    places: &'a mut [Option<Holder>],
    way: u8,
}

impl<'a> Holders<'a> {
    /// Returns those of an entry, in the places of its group.
    pub(super) const fn of(places: &'a mut [Option<Holder>], way: u8) -> Self {
        Self { places, way }
    }

    pub(super) const fn way(&self) -> u8 {
        self.way
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Holder> {
        let way = self.way;
        self.places.iter().flatten().filter(move |h| h.way == way)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Holder> {
        let way = self.way;
        let all = self.places.iter_mut().flatten();
        all.filter(move |holder| holder.way == way)
    }

    pub(super) fn len(&self) -> usize {
        count(self.iter())
    }

    /// Finds a holder.
    pub(super) fn find(&mut self, is_it: impl Fn(&Holder) -> bool) -> Option<&mut Holder> {
        self.iter_mut().find(|holder| is_it(holder))
    }

    /// Takes holders out; `is_it` is called once for each.
    pub(super) fn remove(&mut self, mut is_it: impl FnMut(&Holder) -> bool) {
        let way = self.way;
        for place in &mut *self.places {
            if place.is_some_and(|holder| holder.way == way && is_it(&holder)) {
                *place = None;
            }
        }
    }

    /// Gives a holder a place: a free one, that of an entry which has more of them than this one,
    /// or that of another holder of this entry. So an entry may have [`HOLDERS_MAX`], as long as
    /// others do not need theirs, and [`KEPT`] in any case. Returns the holder that had it.
    pub(super) fn put(&mut self, holder: Holder) -> Option<Holder> {
        let own = self.len();
        if own < HOLDERS_MAX {
            if let Some(free) = self.places.iter_mut().find(|place| place.is_none()) {
                *free = Some(holder);
                return None;
            }
        }
        let way = match self.richest() {
            (most, way) if own < HOLDERS_MAX && most > own => way,
            _ => self.way,
        };
        Holders::of(self.places, way).victim()?.replace(holder)
    }

    /// Gives a holder that told of itself a place, if that pushes out none of an entry that has no
    /// more than [`KEPT`].
    pub(super) fn offer(&mut self, holder: Holder) -> Option<Holder> {
        if self.len() >= KEPT {
            return None;
        }
        self.put(holder)
    }

    /// Returns the largest number of holders that an entry of the group has, and which entry.
    fn richest(&self) -> (usize, u8) {
        let mut counts = [0usize; WAYS];
        for holder in self.places.iter().flatten() {
            if let Some(of) = counts.get_mut(usize::from(holder.way)) {
                *of = of.wrapping_add(1);
            }
        }
        let ways = counts.into_iter().zip(0u8..);
        ways.max_by_key(|(count, _)| *count)
            .unwrap_or((0, self.way))
    }

    /// Returns the place of the holder that has served most among those whose pages others of its
    /// entry have as well.
    fn victim(&mut self) -> Option<&mut Option<Holder>> {
        let (mut once, mut twice) = (PageSet::EMPTY, PageSet::EMPTY);
        for holder in self.iter() {
            twice = twice.union(once.intersection(holder.pages));
            once = once.union(holder.pages);
        }
        let way = self.way;
        let of_way = move |place: &&mut Option<Holder>| place.is_some_and(|h| h.way == way);
        let places = self.places.iter_mut().filter(of_way);
        places.max_by_key(|place| {
            // Of those that have served alike, the one that was noted first.
            place.map(|holder| {
                let is_spare = holder.pages.is_subset(twice);
                (is_spare, holder.served, u64::MAX.wrapping_sub(holder.order))
            })
        })
    }
}
