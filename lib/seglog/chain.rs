// SPDX-License-Identifier: GPL-2.0

//! Batches of a log that is followed.

use core::ops::Range;

use super::{
    batch::{
        copy,
        rebuild,
        Head,
        Kind,
        HEAD_BYTES, //
    },
    cursor::Cursor,
    devices::Devices,
    epoch::GIVEN_UP_MAX,
    fault::Fault,
    layout::{
        Layout,
        Parts,
        Place, //
    },
    members::{
        column_of,
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    reading::{
        self,
        Columns, //
    },
    ArrayTag,
    Checksum, //
};

/// Memory for a column of each member, of [`Layout::column_units_max`] units, or as long as the
/// longest batch of the array.
pub type Scratch<'a> = [&'a mut [u8]; MEMBERS];

/// A batch that is accepted.
pub(crate) struct Accepted {
    pub(crate) head: Head,
    pub(crate) hash: u32,
    /// The members whose columns are whole.
    pub(crate) whole: Members,
    /// Members that a mirror is not on, and that have there what a later incarnation has begun
    /// before it was cut off: who looks for the newest batch of that place would find it.
    pub(crate) covered: Members,
}

/// A place where a batch may be that too few members give.
#[derive(Clone, Copy)]
struct Doubt {
    /// The latest incarnation that it may have.
    latest: u64,
    member: usize,
    at: u64,
}

impl Doubt {
    /// Returns the one of two that may hide the later incarnation: `before`, or that of members
    /// which cannot be read, if any.
    fn of(before: Option<Self>, unreadable: Members, (latest, at): (u64, u64)) -> Option<Self> {
        let member = unreadable.iter().next();
        let this = member.map(|member| Self { latest, member, at });
        match (before, this) {
            (Some(before), Some(this)) if this.latest > before.latest => Some(this),
            (before, this) => before.or(this),
        }
    }

    const fn fault<E>(&self) -> Fault<E> {
        Fault::Unreadable {
            member: self.member,
            at: self.at,
        }
    }
}

/// The incarnations of what members have at the start of the next segment, in its next use; 0 if
/// they have nothing there.
#[derive(Default)]
struct Starts {
    begun: [u64; MEMBERS],
    /// The incarnations of those that may follow the cursor.
    ended: [u64; MEMBERS],
    /// The members that can be read there.
    read: Members,
}

impl Starts {
    fn note(&mut self, member: usize, head: &Head, (cursor, fits): (&Cursor, bool)) {
        let incarnation = cursor.begun_by(head);
        if let Some(begun) = self.begun.get_mut(member).filter(|_| incarnation > 0) {
            *begun = incarnation;
        }
        if let Some(ended) = self.ended.get_mut(member).filter(|_| fits) {
            *ended = incarnation;
        }
    }

    /// Returns the incarnation by which the log has ended here; 0 if one of the members that can be
    /// read has none. What has begun there on all was flushed: it is written again in its place,
    /// and power may leave no whole one of it. What is older was given up then. If those that can
    /// be read are too few a [`Doubt`] says so.
    fn ended_by(&self) -> u64 {
        let each = self.read.iter().filter_map(|member| self.ended.get(member));
        each.min().copied().unwrap_or_default()
    }

    /// Returns the members that a batch covers something of.
    fn covered(&self, head: &Head, in_sync: Members) -> Members {
        if head.place.unit > 0 {
            return Members::NONE;
        }
        let others = in_sync.minus(head.used).iter();
        let is_later = |member: &usize| self.begun.get(*member) > Some(&head.incarnation);
        others.filter(is_later).collect()
    }
}

/// The members in sync, of which batches are read.
pub(crate) struct Chain<'a, D, C> {
    pub(crate) devices: &'a mut D,
    pub(crate) crc: &'a C,
    pub(crate) columns: Scratch<'a>,
    pub(crate) layout: Layout,
    pub(crate) tag: ArrayTag,
    pub(crate) in_sync: Members,
    /// The members that cannot have failed by an epoch which slots may hide: what another one lacks
    /// may have been flushed since.
    pub(crate) trusted: Members,
    /// The incarnation of the epoch, which was durable before any batch of it: no later one has
    /// written anything.
    pub(crate) incarnation: u64,
    /// The number of a batch in whose place a member has one of a later incarnation.
    pub(crate) later: Option<u64>,
    /// Superblocks may hide a later epoch, or which one of two it is: the log is asked.
    pub(crate) may_be_hidden: bool,
    /// Gives up what was written without a member that is in sync.
    pub(crate) gives_up: bool,
    /// The incarnations that the epoch has left out by force, which all have been told.
    pub(crate) left_out: Range<u64>,
    /// The number of a batch that says otherwise than the epoch, and the members it was written
    /// with: one begins without a member only when those that live have been told so.
    pub(crate) lived: Option<(u64, Members)>,
}

impl<D: Devices, C: Checksum> Chain<'_, D, C> {
    /// Returns the next batch of the log, if it is whole: then its columns are in memory.
    ///
    /// Each member in sync that has a column of what was flushed has it whole. So a member that
    /// cannot be read where a batch may be is not needed while the others are enough to have it:
    /// they have it, or it was not flushed. Else nothing says that the log ends there.
    pub(crate) fn next(&mut self, cursor: &Cursor) -> Result<Option<Accepted>, Fault<D::Error>> {
        let (mut best, mut doubt): (Option<Accepted>, Option<Doubt>) = (None, None);
        let mut starts = Starts::default();
        let given_up = self.given_up();
        let fits = |head: &Head| cursor.fits(head) && !given_up(head);
        let layout = self.layout;
        let places = cursor.places();
        for (place, at) in places.filter_map(|place| Some((place, layout.at(place)?))) {
            let mut unreadable = Members::NONE;
            for member in self.in_sync.iter() {
                let Ok(found) = self.head(member, place, at) else {
                    unreadable = unreadable.or(Members::of(member));
                    continue;
                };
                if let Some((head, _)) = &found {
                    starts.note(member, head, (cursor, fits(head)));
                }
                let found = found.filter(|(head, _)| fits(head));
                // A member that lies would else cut the log: a later incarnation goes before.
                if found.is_some_and(|(head, _)| head.incarnation > self.incarnation) {
                    self.later = Some(cursor.sequence);
                    continue;
                }
                if self.is_of_others(found.as_ref()) {
                    return Ok(None);
                }
                let is_newer = |head: &Head| {
                    let best = best.as_ref().map(|best| best.head.incarnation);
                    best.is_none_or(|best| head.incarnation > best)
                };
                let Some((head, hash)) = found.filter(|(head, _)| is_newer(head)) else {
                    continue;
                };
                let columns = self.load(&head, hash)?;
                let whole = columns.whole;
                if whole.count() >= head.kind.columns_needed() && self.fill(&head, whole) {
                    let covered = Members::NONE;
                    best = Some(Accepted {
                        head,
                        hash,
                        whole,
                        covered,
                    });
                } else {
                    let lacking = self.lacking(&head, &columns);
                    doubt = Doubt::of(doubt, lacking, (head.incarnation, at));
                }
            }
            starts.read = self.in_sync.minus(unreadable);
            if self.trusted.minus(unreadable).count() < self.layout.members_needed() {
                doubt = Doubt::of(doubt, unreadable, (self.latest(cursor, place), at));
            }
        }
        let ended = starts.ended_by().min(self.incarnation);
        let best = best.filter(|best| best.head.incarnation >= ended);
        let newest = best.as_ref().map(|best| best.head.incarnation);
        match (best, doubt) {
            (_, Some(doubt)) if newest.is_none_or(|newest| newest < doubt.latest) => {
                Err(doubt.fault())
            }
            (Some(mut best), _) => {
                best.covered = starts.covered(&best.head, self.in_sync);
                self.load_again(best).map(Some)
            }
            (None, _) => Ok(None),
        }
    }

    /// Returns whether a batch was left out by force, or written without a member that is in sync
    /// since a point that the user has gone back to by force: now, or as the incarnation says.
    fn given_up(&self) -> impl Fn(&Head) -> bool + use<D, C> {
        let (gives_up, in_sync, incarnation) = (self.gives_up, self.in_sync, self.incarnation);
        let left_out = self.left_out.clone();
        move |head| {
            let is_before = head.incarnation.saturating_add(GIVEN_UP_MAX) <= incarnation;
            let is_others = (gives_up || is_before) && !in_sync.is_within(head.live);
            is_others || left_out.contains(&head.incarnation)
        }
    }

    /// Writes zeroes over the heads in a segment that were left out by force; whether there were
    /// any.
    pub(crate) fn clear_left_out(&mut self, segment: u32) -> Result<bool, Fault<D::Error>> {
        let mut is_cleared = false;
        for unit in 0..self.layout.parts().segment_units {
            let place = Place { segment, unit };
            let Some(at) = self.layout.at(place) else {
                continue;
            };
            for member in self.in_sync.iter() {
                let found = self.head(member, place, at).ok().flatten();
                if !found.is_some_and(|(head, _)| self.left_out.contains(&head.incarnation)) {
                    continue;
                }
                let unit = self.columns.get_mut(member);
                let unit = unit.and_then(|unit| unit.get_mut(..self.layout.unit_bytes()));
                let unit = unit.ok_or(Fault::Scratch)?;
                unit.fill(0);
                let written = self.devices.write(member, at, unit, false);
                written.map_err(|e| Fault::Io(member, e))?;
                is_cleared = true;
            }
        }
        Ok(is_cleared)
    }

    /// Whether a batch was written without a member that is in sync, which is noted.
    fn is_of_others(&mut self, found: Option<&(Head, u32)>) -> bool {
        let Some((head, _)) = found.filter(|_| self.may_be_hidden) else {
            return false;
        };
        let is_of_others = !self.in_sync.is_within(head.live);
        if is_of_others {
            self.lived = Some((head.sequence, head.live));
        }
        is_of_others
    }

    /// Returns the latest incarnation that a batch may have at a place.
    fn latest(&self, cursor: &Cursor, place: Place) -> u64 {
        if place.unit == 0 {
            self.incarnation
        } else {
            cursor.incarnation
        }
    }

    /// Returns the members that may have what a batch is not whole without: those that cannot be
    /// read or, if too few are there, those that are not. None of one that was torn.
    fn lacking(&self, head: &Head, columns: &Columns) -> Members {
        let Columns { whole, unreadable } = *columns;
        if !head.used.and(self.trusted).is_within(whole.or(unreadable)) {
            return Members::NONE;
        }
        let is_elsewhere = !whole.is_empty()
            && whole == head.used.and(self.in_sync)
            && whole.count() < head.kind.columns_needed();
        if unreadable.is_empty() && is_elsewhere {
            head.used.minus(whole)
        } else {
            unreadable
        }
    }

    /// Loads the columns of a batch that was accepted: those of another candidate may have come
    /// after them.
    fn load_again(&mut self, accepted: Accepted) -> Result<Accepted, Fault<D::Error>> {
        let Accepted { head, hash, .. } = accepted;
        let whole = self.load(&head, hash)?.whole;
        if whole.count() >= head.kind.columns_needed() && self.fill(&head, whole) {
            return Ok(Accepted { whole, ..accepted });
        }
        let at = self.layout.at(head.place).unwrap_or_default();
        let member = accepted.whole.minus(whole).iter().next();
        Err(Fault::Unreadable {
            member: member.unwrap_or_default(),
            at,
        })
    }

    /// Reads the head of a member's column.
    fn head(&mut self, member: usize, place: Place, at: u64) -> Result<Option<(Head, u32)>, ()> {
        let to = self.columns.get_mut(member).ok_or(())?;
        let to = to.get_mut(..self.layout.unit_bytes()).ok_or(())?;
        self.devices.read(member, at, to).map_err(|_| ())?;
        Ok(Head::parse(to, place, (&self.layout, self.tag), self.crc))
    }

    /// Reads the columns of a batch that the members in sync have.
    fn load(&mut self, head: &Head, hash: u32) -> Result<Columns, Fault<D::Error>> {
        reading::columns(
            self.devices,
            (head, hash),
            self.in_sync,
            &mut self.columns,
            (&self.layout, self.tag),
            self.crc,
        )
    }

    /// Makes, in memory, the columns of a batch that are not whole, of enough that are; returns
    /// whether they are what their CRCs say.
    fn fill(&mut self, head: &Head, whole: Members) -> bool {
        let bytes = head.column_bytes(&self.layout);
        let wanted = match head.kind {
            Kind::Striped => Members::ALL,
            Kind::Mirror => head.used,
        };
        for member in wanted.minus(whole).iter() {
            let mut others = [(); DATA_COLUMNS].map(|()| None);
            let mut to = None;
            for (other, column) in (0..MEMBERS).zip(&mut self.columns) {
                let Some(column) = column.get_mut(..bytes) else {
                    return false;
                };
                if other == member {
                    to = Some(column);
                } else if let Some(free) = others.iter_mut().find(|o| o.is_none()) {
                    *free = Some((other, &*column));
                }
            }
            let (Some(to), [Some((first, one)), Some((_, other))]) = (to, others) else {
                return false;
            };
            let source = if whole.contains(first) { one } else { other };
            match head.kind {
                Kind::Striped => {
                    rebuild(to, [one, other]);
                    if let (Some(to), Some(from)) =
                        (to.get_mut(..HEAD_BYTES), source.get(..HEAD_BYTES))
                    {
                        copy(to, from);
                    }
                }
                Kind::Mirror => copy(to, source),
            }
            let body = to.get(HEAD_BYTES..).unwrap_or_default();
            let expected = head.bodies.get(column_of(head.place.segment, member));
            if expected != Some(&self.crc.crc32c(body)) {
                return false;
            }
        }
        true
    }

    /// Returns the latest incarnation that has begun where the log ends, by the head of its first
    /// batch, which may be torn.
    pub(crate) fn begun_at(&mut self, end: &Cursor) -> Option<u64> {
        let place = Place {
            segment: end.next,
            unit: 0,
        };
        let at = self.layout.at(place)?;
        let mut latest = None;
        for member in self.in_sync.iter() {
            // What cannot be read here says nothing.
            let found = self.head(member, place, at).ok().flatten();
            let incarnation = found.filter(|(head, _)| end.fits(head));
            let incarnation = incarnation.map(|(head, _)| head.incarnation);
            let known = incarnation.filter(|incarnation| *incarnation <= self.incarnation);
            latest = latest.max(known);
        }
        latest
    }

    /// Looks at the heads in units of a segment; returns the first for which `test` holds.
    pub(crate) fn find(
        &mut self,
        (segment, first): (u32, u32),
        mut test: impl FnMut(&Head) -> bool,
    ) -> Option<Head> {
        let mut units = first..self.layout.parts().segment_units;
        units.find_map(|unit| self.find_at(Place { segment, unit }, &mut test))
    }

    /// Looks, as [`Self::find`] does, at the heads at the start of each segment.
    pub(crate) fn find_start(&mut self, mut test: impl FnMut(&Head) -> bool) -> Option<Head> {
        let mut segments = 0..self.layout.parts().segments;
        segments.find_map(|segment| self.find_at(Place { segment, unit: 0 }, &mut test))
    }

    /// Whether no members have more of an incarnation without one of them, and later ones, than
    /// first batches at one place. Each begins with a segment. Uses of segments before one that a
    /// dump has say nothing.
    pub(crate) fn has_begun_only(&mut self, since: (u64, u64)) -> bool {
        let mut begun = None;
        let Parts {
            segments,
            segment_units,
            ..
        } = *self.layout.parts();
        for segment in 0..segments {
            let is_there = self.has_since((segment, 0), since);
            if is_there != Some(false) && begun.replace(segment).is_some() {
                return false;
            }
        }
        let behind = begun.map(|segment| (1..segment_units).map(move |unit| (segment, unit)));
        let mut behind = behind.into_iter().flatten();
        behind.all(|place| self.has_since(place, since) == Some(false))
    }

    /// Whether a member in sync has a head at a place, of an incarnation and a use of the segment
    /// that are not earlier, and without another member. `None` if one cannot be read.
    fn has_since(
        &mut self,
        (segment, unit): (u32, u32),
        (incarnation, segment_sequence): (u64, u64),
    ) -> Option<bool> {
        let place = Place { segment, unit };
        let at = self.layout.at(place)?;
        let mut is_there = Some(false);
        let in_sync = self.in_sync;
        let is_since = |head: &Head| {
            let is_later =
                head.incarnation >= incarnation && head.segment_sequence >= segment_sequence;
            is_later && !in_sync.is_within(head.live)
        };
        for member in in_sync.iter() {
            match self.head(member, place, at) {
                Ok(Some((head, _))) if is_since(&head) => return Some(true),
                Ok(_) => {}
                Err(()) => is_there = None,
            }
        }
        is_there
    }

    /// Looks at the heads that members have at a place.
    fn find_at(&mut self, place: Place, test: &mut impl FnMut(&Head) -> bool) -> Option<Head> {
        let at = self.layout.at(place)?;
        let mut members = self.in_sync.iter();
        members.find_map(|member| {
            // What cannot be read here says nothing.
            let found = self.head(member, place, at).ok().flatten();
            found.map(|(head, _)| head).filter(|head| test(head))
        })
    }

    /// Looks, as [`Self::find`] does, at heads of one use of the segment that may be of the log: of
    /// an incarnation from `since` on, up to that of the epoch.
    pub(crate) fn find_of_use(
        &mut self,
        from: (u32, u32),
        (segment_sequence, since): (u64, u64),
        mut test: impl FnMut(&Head) -> bool,
    ) -> Option<Head> {
        let known = since..=self.incarnation;
        let is_given_up = self.given_up();
        self.find(from, |head| {
            let is_of_use = head.segment_sequence == segment_sequence;
            is_of_use && known.contains(&head.incarnation) && !is_given_up(head) && test(head)
        })
    }
}
