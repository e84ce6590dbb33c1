// SPDX-License-Identifier: GPL-2.0

//! Reads whose members are slow, or have failed: the others are read.

use kernel::sync::Arc;
use seglog::members::{
    Members,
    MEMBERS, //
};

use super::{
    Reads,
    PARTS_MAX,
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

impl Reads {
    /// Returns the members that owe as many answers as they may.
    fn full(&self) -> Members {
        let is_full = |member: &usize| self.parts(*member) >= PARTS_MAX;
        (0..MEMBERS).filter(is_full).collect()
    }

    /// Leaves out of what was found the members that are not asked.
    pub(super) fn choose(&mut self, tag: usize, found: Found) -> Found {
        let full = self.full();
        let asking = self.readings.get_mut(tag).map(|r| &mut r.asking);
        let usable = asking.map(|asking| asking.ask(&found.spot, found.usable, full));
        Found {
            usable: usable.unwrap_or(found.usable),
            ..found
        }
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
            let (tag, found, pending) = (piece.tag, piece.found, piece.pending);
            let is_late = now_ms.saturating_sub(piece.begun_ms) > hedge_ms;
            if !is_late || piece.is_given_up {
                continue;
            }
            // Also those that were left out when it was asked for, as they had too much to do.
            let usable = self.array.usable(found.spot.segment);
            let asking = self.reads.reading(tag).map(|reading| &mut reading.asking);
            if asking.is_some_and(|asking| asking.hedge(&found.spot, usable, pending)) {
                core.stats.add(Stat::HedgedReads, 1);
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
