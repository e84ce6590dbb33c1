// SPDX-License-Identifier: GPL-2.0

//! IO that was not begun, as the device may not be used for now: it says nothing of the device, so
//! nothing of what is known of that changes, and writes go on when the device may be used again.

use core::borrow::BorrowMut;

use super::{
    super::{
        pi_cache::Slot,
        queue::{
            Kind,
            Ticket,
            Tickets, //
        },
    },
    Memory,
    Place,
    Stage,
    Store, //
};

impl<R: BorrowMut<[Place]>, H: BorrowMut<[Slot]>> Store<R, H> {
    /// Says whether the device may be used. While it may not, what changes it fails, and nothing of
    /// the store's own is begun: that would be refused again and again.
    pub fn permit(&mut self, is_permitted: bool) {
        self.is_held = !is_permitted;
    }

    /// Returns whether nothing is to be begun that changes the device.
    pub(super) const fn begins_nothing(&self) -> bool {
        self.has_failed || self.is_held
    }

    /// Returns whether a PI block that cannot be read may be written anew.
    pub const fn may_mend(&self) -> bool {
        !self.begins_nothing()
    }

    /// Returns the group whose PI block is in a slot.
    pub fn group(&self, slot: usize) -> Option<u64> {
        self.cache.group(slot)
    }

    /// The record that was started was not begun: its requests fail, and have changed nothing.
    pub fn record_refused(&mut self) {
        self.ring.end(false);
        self.end_record(Stage::Done(false));
    }

    /// The data of a request were not begun: those that are there, and their tuples, stay. A record
    /// names those that are not, so the data before them are right until it is settled.
    pub fn data_refused(&mut self, ticket: Ticket, memory: &mut impl Memory) {
        let Some(queued) = self.queue.get(ticket).copied() else {
            return;
        };
        match queued.request.kind() {
            // What is at the place of discarded blocks does not count.
            Kind::Discard => return self.data_done(ticket, true, memory),
            Kind::Write { .. } => {
                let settled = self.ring.settled();
                self.cached.add_failed(queued.state.sequence, settled);
            }
            Kind::Read | Kind::Flush => {}
        }
        self.set_stage(ticket, Stage::Done(false));
    }

    /// The oldest write that is to be read back now: one at a time, for which its user has memory.
    pub(super) fn to_read_back(&self) -> Option<Ticket> {
        let failed = self.at_stage(Stage::Failed)?;
        let is_free = !self.is_held && self.stages.at(Stage::InReadBack).is_empty();
        is_free.then_some(failed)
    }

    /// Returns the writes that have failed, and of which was not seen what they have left. While
    /// the device may not be used their answers do not wait for that.
    pub fn unseen(&self) -> Tickets {
        self.stages.at(Stage::Failed)
    }

    /// A block of a write that has failed was not begun to be read back. What is there is seen when
    /// the device may be used again: until then nothing else is done to its blocks.
    pub fn read_back_refused(&mut self, ticket: Ticket) {
        self.set_stage(ticket, Stage::Failed);
    }

    /// A PI block was not begun to be written back.
    pub fn write_back_refused(&mut self, slot: usize) {
        self.cache.end_write(slot, false);
    }

    /// The flush was not begun: what it was to cover is for the next one.
    pub fn flush_refused(&mut self) {
        self.flushing = None;
        self.cache.undo_flush();
        self.cached.undo_flush();
        self.end_flushes(false);
    }
}
