// SPDX-License-Identifier: GPL-2.0

//! Reads whose members are slow, or have failed: the others are read.

use kernel::sync::Arc;
use seglog::{
    members::Members,
    source, //
};

use super::{
    Reads,
    PIECES, //
};
use crate::{
    device::{
        core::Core,
        engine::Engine,
        stats::Stat, //
    },
    proto::array::Found,
};

/// Leaves members out of what was found; `None` if the others do not have it.
fn without(found: &Found, members: Members) -> Option<Found> {
    let usable = found.usable.minus(members);
    let has_way = source::sources(&found.spot, usable).next().is_some();
    has_way.then_some(Found { usable, ..*found })
}

impl Reads {
    /// Leaves out of what was found the members that are not asked. If all who have it were slow
    /// they are waited for from then on: each round would be given up as the one before.
    pub(super) fn choose(&mut self, tag: usize, found: Found) -> Found {
        let Some(reading) = self.readings.get(tag).copied() else {
            return found;
        };
        if let Some(others) = without(&found, self.avoided(&reading)) {
            return others;
        }
        let are_slow = without(&found, reading.avoided).is_none();
        if let Some(reading) = self.readings.get_mut(tag) {
            reading.waits_for_all |= are_slow;
        }
        found
    }
}

impl Engine {
    /// Reads what members have had for too long from the others, where these have it.
    pub(in crate::device) fn hedge_reads(&mut self, core: &Arc<Core>) {
        let hedge_ms = u64::from(core.settings.hedge_ms);
        let now_ms = core.now_ms();
        for number in 0..PIECES {
            let Some(Some(piece)) = self.reads.pieces.get(number) else {
                continue;
            };
            let pending = piece.pending;
            let is_late = now_ms.saturating_sub(piece.begun_ms) > hedge_ms;
            let mut others = source::sources(&piece.found.spot, piece.found.usable.minus(pending));
            let has_other = others.next().is_some();
            let (tag, is_given_up) = (piece.tag, piece.is_given_up);
            let reading = self.reads.readings.get(tag);
            let may_hedge = reading.is_some_and(|reading| !reading.waits_for_all);
            if is_late && has_other && may_hedge && !is_given_up {
                core.stats.add(Stat::HedgedReads, 1);
                if let Some(reading) = self.reads.reading(tag) {
                    reading.avoided = reading.avoided.or(pending);
                }
                self.give_up(core, number);
            }
        }
    }

    /// A member has failed: what it was to answer is looked up again, and read from the others. The
    /// memory of a piece is in use until all its parts have ended.
    pub(in crate::device) fn give_up_reads(&mut self, core: &Arc<Core>, member: usize) {
        for number in 0..PIECES {
            let Some(Some(piece)) = self.reads.pieces.get_mut(number) else {
                continue;
            };
            if !piece.is_given_up && piece.pending.contains(member) {
                self.give_up(core, number);
            }
        }
    }

    /// Gives a piece up: its answers will not be used, and its request is looked up again.
    fn give_up(&mut self, core: &Arc<Core>, number: usize) {
        let Some(Some(piece)) = self.reads.pieces.get_mut(number) else {
            return;
        };
        piece.is_given_up = true;
        let piece = *piece;
        self.array.end_read(&piece.found);
        if let Some(reading) = self.reads.reading(piece.tag) {
            reading.is_moved = true;
            reading.pieces = reading.pieces.saturating_sub(1);
        }
        self.end_read(core, piece.tag);
    }
}
