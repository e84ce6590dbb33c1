// SPDX-License-Identifier: GPL-2.0

//! The end of a log that was followed: what is behind it is looked at.

use super::{
    batch::Head,
    cursor::Cursor,
    devices::Devices,
    epoch::others_by_force,
    fault::Fault,
    recovery::Recovery,
    superblock::CUT_OFF_MAX,
    Checksum, //
};

impl<D: Devices, C: Checksum> Recovery<'_, D, C> {
    /// Whether there is a head behind the end of the log, in its segment or the next one: where
    /// [`Self::check_end`] would find it when the incarnation was begun again before it.
    pub(crate) fn is_followed(&mut self, end: &Cursor) -> bool {
        let use_of_next = end.segment_sequence.saturating_add(1);
        let places = [
            ((end.segment, end.unit), end.segment_sequence),
            ((end.next, 0), use_of_next),
        ];
        let mut places = places.into_iter();
        places.any(|(from, of_use)| {
            let of_use = (of_use, end.incarnation);
            self.chain.find_of_use(from, of_use, |_| true).is_some()
        })
    }

    /// Checks that nothing behind the end of the log says that it was longer: in its segment, and
    /// in those that the heads there lead to, as what is written between two flushes may fill many.
    /// Heads of an incarnation before that of the last batch are of what was given up, and so are
    /// those before one that has begun here: it has found this end, too.
    pub(crate) fn check_end(&mut self, end: &Cursor) -> Result<(), Fault<D::Error>> {
        let says_more = |head: &Head| head.durable >= end.sequence;
        let since = self.chain.begun_at(end).unwrap_or(end.incarnation);
        let here = (end.unit > 0).then_some((end.segment, end.unit));
        let here = here.and_then(|from| {
            let of_use = (end.segment_sequence, since);
            self.chain.find_of_use(from, of_use, says_more)
        });
        let mut is_longer = here.is_some();
        let mut is_older = self.is_superseded(end.segment, end);
        let (mut segment, mut number) = (end.next, end.segment_sequence);
        for _ in 0..self.chain.layout.parts().segments {
            number = number.saturating_add(1);
            // An older incarnation may have been here, and gone elsewhere.
            let mut newest: Option<Head> = None;
            let of_use = (number, since);
            let found = self.chain.find_of_use((segment, 0), of_use, |head| {
                if newest.is_none_or(|newest| head.incarnation > newest.incarnation) {
                    newest = Some(*head);
                }
                says_more(head)
            });
            is_longer |= found.is_some();
            is_older = is_older || self.is_superseded(segment, end);
            match newest {
                Some(head) if !is_longer => segment = head.next,
                _ => break,
            }
        }
        if is_longer {
            return Err(Fault::Damaged {
                sequence: end.sequence,
            });
        }
        is_older = is_older || self.is_left();
        let later = self.chain.later.or(is_older.then_some(end.sequence));
        match later.filter(|_| self.may_be_older) {
            Some(sequence) => Err(Fault::Superseded { sequence }),
            None => Ok(()),
        }
    }

    /// Writes zeroes over what was given up where this incarnation begins, when all have been told
    /// the epoch that gives it up. The first batch may be torn, and what was behind the one in its
    /// place would say that the log is damaged, when no slot shows any more what was given up.
    pub(crate) fn clear_left_out(&mut self) -> Result<(), Fault<D::Error>> {
        let left_out = self.left_out();
        // What was told to some alone may be followed.
        if left_out.is_empty() || left_out.contains(&self.end.incarnation) {
            return Ok(());
        }
        self.chain.left_out = left_out;
        match self.chain.clear_left_out(self.opens_at().next)? {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Checks that the log has not gone through the segment that it names as the next one, where
    /// this incarnation will begin. It has if a later start is hidden: what is before that one is
    /// free, and the last batches name some of it.
    pub(crate) fn check_next(&mut self) -> Result<(), Fault<D::Error>> {
        let (next, sequence) = (self.end.next, self.end.sequence);
        let uses = self.start.cursor.segment_sequence..=self.end.segment_sequence;
        let is_of_use = |head: &Head| uses.contains(&head.segment_sequence);
        if self.chain.find((next, 0), is_of_use).is_none() {
            return Ok(());
        }
        // It may be of what was given up: only the log itself tells.
        let mut is_there = false;
        self.follow(|head, _| is_there |= head.place.segment == next)?;
        match is_there {
            true => Err(Fault::Overrun { sequence }),
            false => Ok(()),
        }
    }

    /// Returns the latest incarnation that heads name: each begins with a segment, so that the
    /// start of each tells; where the log ends another one may have begun over that, and been cut
    /// off. One that is far ahead is none of the array: a member that lies could else use up all.
    pub(crate) fn latest_begun(&mut self) -> u64 {
        let known = ..=self.choice.incarnation.saturating_add(CUT_OFF_MAX / 2);
        let mut latest = 0;
        let mut note = |head: &Head| {
            if known.contains(&head.incarnation) {
                latest = head.incarnation.max(latest);
            }
            false
        };
        self.chain.find((self.end.next, 0), &mut note);
        self.chain.find_start(&mut note);
        latest
    }

    /// Checks that nothing was written in an epoch that does not count then, nor since: its own
    /// first batch has nothing of a user, and is written over where the next assembly begins in its
    /// place. What cannot be read may say that there was more.
    pub(crate) fn check_not_begun(&mut self) -> Result<(), Fault<D::Error>> {
        let forced = others_by_force(&self.held, &self.choice, self.come_from());
        let others = [self.choice.unless_begun, forced];
        let Some(epoch) = others.into_iter().flatten().min() else {
            return Ok(());
        };
        // A dump that has what was written before a member came back was told to all.
        let first_use = match self.choice.is_forked {
            true => 0,
            false => self.start.cursor.segment_sequence,
        };
        match self.chain.has_begun_only((epoch, first_use)) {
            true => Ok(()),
            false => Err(self.excluded()),
        }
    }

    /// Whether a slot may hide what was written, and a segment begins with a batch of a later
    /// incarnation than the superblocks know: it may be far from the log that they have. Of a new
    /// array, with one slot written and zeroes in the other, no segment is looked at.
    fn is_left(&mut self) -> bool {
        let known = self.chain.incarnation;
        let is_later = |head: &Head| head.incarnation > known;
        let may_be = self.may_be_older && !self.hiding.is_empty();
        may_be && self.chain.find_start(is_later).is_some()
    }

    /// Whether the superblocks may be older than the log, and a segment where it ends says that
    /// they are: by a head of another use of it that calls durable what is not there.
    fn is_superseded(&mut self, segment: u32, end: &Cursor) -> bool {
        let is_behind =
            |head: &Head| end.sequence <= head.durable && end.incarnation <= head.incarnation;
        self.may_be_older && self.chain.find((segment, 0), is_behind).is_some()
    }
}
