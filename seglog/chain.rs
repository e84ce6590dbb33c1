// SPDX-License-Identifier: GPL-2.0

//! Batches of a log that is followed.

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
    fault::Fault,
    layout::{
        Layout,
        Place, //
    },
    members::{
        column_of,
        Members,
        DATA_COLUMNS,
        MEMBERS, //
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
}

/// The members in sync, of which batches are read.
pub(crate) struct Chain<'a, D, C> {
    pub(crate) devices: &'a mut D,
    pub(crate) crc: &'a C,
    pub(crate) columns: Scratch<'a>,
    pub(crate) layout: Layout,
    pub(crate) tag: ArrayTag,
    pub(crate) in_sync: Members,
    /// The incarnation of the epoch, which was durable before any batch of it: no later one has
    /// written anything.
    pub(crate) incarnation: u64,
}

impl<D: Devices, C: Checksum> Chain<'_, D, C> {
    /// Returns the next batch of the log, if it is whole: then its columns are in memory.
    pub(crate) fn next(&mut self, cursor: &Cursor) -> Result<Option<Accepted>, Fault<D::Error>> {
        let mut best: Option<Accepted> = None;
        let mut unreadable = None;
        for place in cursor.places() {
            let Some(at) = self.layout.at(place) else {
                continue;
            };
            for member in self.in_sync.iter() {
                let found = match self.head(member, place, at) {
                    Ok(found) => found.filter(|(head, _)| cursor.fits(head)),
                    Err(()) => {
                        unreadable = Some(Fault::Unreadable { member, at });
                        continue;
                    }
                };
                let is_newer = |head: &Head| {
                    let best = best.as_ref().map(|best| best.head.incarnation);
                    best.is_none_or(|best| head.incarnation > best)
                };
                let Some((head, hash)) = found.filter(|(head, _)| is_newer(head)) else {
                    continue;
                };
                let (whole, failed) = self.load(&head, hash, at)?;
                if whole.count() >= head.kind.columns_needed() && self.fill(&head, whole) {
                    best = Some(Accepted { head, hash, whole });
                } else if let Some(member) = failed {
                    unreadable = Some(Fault::Unreadable { member, at });
                }
            }
        }
        let Some(best) = best else {
            return unreadable.map_or(Ok(None), Err);
        };
        // The columns of another candidate may have come after it.
        let at = self.layout.at(best.head.place).unwrap_or_default();
        let (whole, _) = self.load(&best.head, best.hash, at)?;
        if whole != best.whole || !self.fill(&best.head, whole) {
            let member = best.whole.minus(whole).iter().next().unwrap_or_default();
            return Err(Fault::Unreadable { member, at });
        }
        Ok(Some(best))
    }

    /// Reads the head of a member's column.
    fn head(&mut self, member: usize, place: Place, at: u64) -> Result<Option<(Head, u32)>, ()> {
        let to = self.columns.get_mut(member).ok_or(())?;
        let to = to.get_mut(..self.layout.unit_bytes()).ok_or(())?;
        self.devices.read(member, at, to).map_err(|_| ())?;
        let found = Head::parse(to, place, (&self.layout, self.tag), self.crc);
        // A member that lies would else cut the log: a later incarnation goes before.
        Ok(found.filter(|(head, _)| head.incarnation <= self.incarnation))
    }

    /// Reads the columns of a batch; returns the members in sync of which they are whole, and one
    /// that cannot be read.
    fn load(
        &mut self,
        head: &Head,
        hash: u32,
        at: u64,
    ) -> Result<(Members, Option<usize>), Fault<D::Error>> {
        let bytes = head.column_bytes(&self.layout);
        let (mut whole, mut failed) = (Members::NONE, None);
        for member in head.used.and(self.in_sync).iter() {
            let column = self.columns.get_mut(member);
            let column = column
                .and_then(|column| column.get_mut(..bytes))
                .ok_or(Fault::Scratch)?;
            if self.devices.read(member, at, column).is_err() {
                failed = Some(member);
                continue;
            }
            let found = Head::parse(column, head.place, (&self.layout, self.tag), self.crc);
            if found == Some((*head, hash)) && head.is_whole(member, column, self.crc) {
                whole = whole.or(Members::of(member));
            }
        }
        Ok((whole, failed))
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

    /// Looks at the heads in units of a segment that are of one of its uses; returns the first for
    /// which `test` holds.
    pub(crate) fn find(
        &mut self,
        (segment, first): (u32, u32),
        segment_sequence: u64,
        test: impl Fn(&Head) -> bool,
    ) -> Option<Head> {
        for unit in first..self.layout.parts().segment_units {
            let place = Place { segment, unit };
            let at = self.layout.at(place)?;
            for member in self.in_sync.iter() {
                // What cannot be read here says nothing.
                let Ok(Some((head, _))) = self.head(member, place, at) else {
                    continue;
                };
                if head.segment_sequence == segment_sequence && test(&head) {
                    return Some(head);
                }
            }
        }
        None
    }
}
