// SPDX-License-Identifier: GPL-2.0

//! Room for batches: segments that may be written, and what makes more of them.

use seglog::{
    members::Members,
    record::{
        Entry,
        Spot, //
    },
    resync::Step, //
};

use super::{
    Actions,
    Array,
    Found,
    Memory, //
};
use crate::proto::{
    budget::Exhausted,
    collector::Victim,
    geometry::segment_bytes_held, //
};

/// The segments of which the next assembly may have to follow one.
const FOLLOWED_SHARE: u64 = 32;
/// The segments that it may have to follow in any array.
const FOLLOWED_MIN: u64 = 4;

/// The segments that writes leave free beside the reserve of the log: a crash and each change of
/// members closes a segment, and as many may come before anything could be collected. Zeroes take
/// of them, or a disk that is full could not be trimmed.
pub(crate) const CLOSED_MAX: usize = 8;

/// Task of the user, beside what was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// A batch, if need be without records.
    Batch,
    /// A segment is to be collected.
    Collect,
    /// Writes are to be refused, as the disk has promised more than there is room for, and a
    /// segment is to be collected. Zeroes are still written.
    Refuse,
}

/// A search for a segment to be collected that has found none, though segments may be few: an array
/// that is nearly full would else look through all of them at each event.
///
/// There may be one when its live records become fewer, when members lose columns, and when what
/// could not be read is tried again. What the log has left since then counts as a change, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fruitless {
    wanted: (Members, u64),
    before: u64,
}

/// The decision about a segment of which a member has not given what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: another one is repaired first, or it cannot be.
    Nothing,
    /// The segment is to be collected.
    Begun,
    /// Nothing, as too many were lately.
    PutOff(Exhausted),
}

impl<M: Memory> Array<M> {
    /// Returns what is to be done. `is_blocked`: a batch waits for a segment.
    pub fn need(&self, is_blocked: bool) -> Need {
        if self.is_stopped() {
            return Need::Nothing;
        }
        match self.resync_step() {
            Some(Step::Batch) => return Need::Batch,
            Some(Step::Collect) => return Need::Collect,
            _ => {}
        }
        let is_full = |held: u64| self.segments.live_bytes() > held;
        if is_blocked && self.held_bytes.is_some_and(is_full) {
            Need::Refuse
        } else if is_blocked || self.is_low || self.to_repair().is_some() {
            Need::Collect
        } else {
            Need::Nothing
        }
    }

    /// Begins what frees segments that nothing is live in; whether something does so now. A dump
    /// is due, too, where an assembly would have to follow too much.
    pub fn free_empty(&mut self, is_blocked: bool, actions: &mut impl Actions) -> bool {
        if self.is_stopped() {
            return false;
        }
        let uses = self.log.cursor().segment_sequence;
        let followed = uses.saturating_sub(self.start.cursor.segment_sequence);
        let share = u64::from(self.layout.parts().segments) / FOLLOWED_SHARE;
        let is_due = followed > share.max(FOLLOWED_MIN);
        if !is_blocked && !is_due {
            return false;
        }
        let flushes = is_blocked && self.log.durable() < self.log.acknowledged();
        if flushes && self.flush(actions) {
            return true;
        }
        if self.dump.is_some() {
            return true;
        }
        if self.dump_helps() {
            self.begin_dump();
            return true;
        }
        flushes
    }
}

impl<M: Memory> Array<M> {
    /// Chooses the segment to be collected next: one that is damaged, or of which a member that is
    /// written lacks columns, else one from which something is gained. `None` if there is none:
    /// then those in which nothing is live become free, as they are all that there is to be
    /// gained.
    pub fn begin_collecting(&mut self, actions: &mut impl Actions) -> Option<Victim> {
        let members = self.log.written_members();
        let before = self.log.collectable_before();
        let wants_segments = !matches!(self.resync_step(), Some(Step::Collect)) || self.is_low;
        // With less to be gained, what is moved could take as much room as before.
        let bytes_max = if wants_segments {
            segment_bytes_held(&self.layout)
        } else {
            0
        };
        let damaged = self.to_repair();
        let search = Fruitless {
            wanted: (members, bytes_max),
            before,
        };
        let Some(segment) = damaged.or_else(|| self.victim(search)) else {
            self.free_empty(self.is_low, actions);
            return None;
        };
        let sequence = self.segments.sequence(segment)?;
        self.segments.begin_read(segment);
        self.collecting = Some(segment);
        for place in &mut self.damaged {
            *place = place.filter(|(other, _)| *other != segment);
        }
        let usable = self.usable(segment);
        Some(Victim::new((segment, sequence), usable, damaged.is_some()))
    }

    /// Searches a segment that is to be collected; if there is none, counts those that are free.
    fn victim(&mut self, search: Fruitless) -> Option<u32> {
        if self.fruitless == Some(search) {
            return None;
        }
        let found = self.segments.victim(search.wanted, search.before);
        if found.is_none() {
            self.fruitless = Some(search);
            self.is_low = self.is_running_low();
        }
        found
    }

    /// An entry has stood for something that is live no more.
    pub(super) fn has_less(&mut self, old: Entry) {
        let Some(search) = self.fruitless else {
            return;
        };
        let Ok(Some(Spot { segment, .. })) = old.spot(&self.layout) else {
            return;
        };
        if self
            .segments
            .is_victim(segment, search.wanted, search.before)
        {
            self.fruitless = None;
        }
    }

    /// A member has not given what was found, and others have: what is live in that segment is
    /// written again, all that it has of each member, or the next member that fails would take it.
    /// One at a time is, and one that is still written when the log has left it. Not while a member
    /// is missing: what is moved has no parity then, and what a good member has a copy of could be
    /// on the other one alone.
    pub fn repair(&mut self, found: &Found, now_ms: u64) -> Repair {
        let segment = found.spot.segment;
        let of_use = (segment, self.segments.sequence(segment).unwrap_or_default());
        let place = usize::from(!self.is_movable(of_use));
        let is_kept = |of_use| self.segments.is_movable(of_use, u64::MAX);
        let is_new = self.has_all_members()
            && is_kept(of_use)
            && self.collecting != Some(segment)
            && !self.damaged.contains(&Some(of_use));
        let other = self.damaged.get_mut(place);
        match other.filter(|other| is_new && !other.is_some_and(is_kept)) {
            Some(place) => match self.repairs.take(now_ms) {
                Ok(()) => {
                    *place = Some(of_use);
                    Repair::Begun
                }
                Err(exhausted) => Repair::PutOff(exhausted),
            },
            None => Repair::Nothing,
        }
    }

    fn is_movable(&self, of_use: (u32, u64)) -> bool {
        let before = self.log.collectable_before();
        self.segments.is_movable(of_use, before)
    }

    /// Returns the segment that is to be repaired now.
    fn to_repair(&self) -> Option<u32> {
        let mut each = self.damaged.iter().flatten();
        let found = each.find(|of_use| self.is_movable(**of_use));
        found
            .filter(|_| self.has_all_members())
            .map(|(segment, _)| *segment)
    }

    fn has_all_members(&self) -> bool {
        self.log.live() == Members::ALL
    }

    /// Some time is over, or a member is there again: what could not be read is tried again.
    pub fn collect_again(&mut self) {
        self.fruitless = None;
        self.segments.collect_again();
    }

    /// The segment was collected, or is given up.
    pub fn end_collecting(&mut self, victim: &Victim) {
        self.end_segment_read(victim.segment());
        self.collecting = None;
        if victim.is_read(&self.layout) {
            self.segments.collected(victim.segment());
        }
        self.is_low = self.is_running_low();
    }
}
