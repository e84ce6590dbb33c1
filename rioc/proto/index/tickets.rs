// SPDX-License-Identifier: GPL-2.0

//! The operations that clients have sent last, as a log keeps them: in the batch of the operation
//! itself, so that both are there after a crash, or neither.

use super::{
    super::{
        slot::{
            Kept,
            Memory,
            Slot, //
        },
        ticket::{
            Lane,
            Ticket,
            Tickets, //
        },
    },
    Changes,
    Index,
    Refused, //
};

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Gives each lane of a client that begins its slot, with what a log has kept of it.
    ///
    /// # Errors
    ///
    /// Returns that there are too few: [`Self::forget`] gives back those that it has.
    pub fn attach(
        &mut self,
        client: [u64; 2],
        tickets: &mut Tickets<impl AsMut<[Lane]>>,
    ) -> Result<(), Refused> {
        for slot in 0..self.slots.count() {
            let kept = self.slots.ticket(slot).filter(|kept| kept.client == client);
            if let Some(ticket) = kept.and_then(|kept| Ticket::from_word(kept.word)) {
                tickets.keep(ticket.lane(), slot, Some(ticket));
            }
        }
        for lane in 0..tickets.count() {
            if tickets.slot(lane).is_none() {
                let kept = Slot::Ticket(Kept { client, word: 0 });
                let slot = self.slots.take(kept).ok_or(Refused::NoSlots)?;
                tickets.keep(lane, slot, None);
            }
        }
        Ok(())
    }

    /// An operation of a client is carried out: a copy of it that comes later is none.
    pub fn note(&mut self, slot: u32, ticket: Ticket, changes: &mut impl Changes) {
        if let Some(kept) = self.slots.ticket_mut(slot) {
            kept.word = ticket.word();
            changes.changed(slot);
        }
    }

    /// Forgets what was kept of a client that is gone for good, in slots from one on and `max` of
    /// them at most; returns where it goes on, if it does.
    pub fn forget(
        &mut self,
        client: [u64; 2],
        (from, max): (u32, usize),
        changes: &mut impl Changes,
    ) -> Option<u32> {
        let mut forgotten = 0usize;
        for slot in from..self.slots.count() {
            let kept = self.slots.ticket(slot).copied();
            let Some(kept) = kept.filter(|kept| kept.client == client) else {
                continue;
            };
            if forgotten == max {
                return Some(slot);
            }
            self.slots.give_back(slot);
            if kept.word != 0 {
                changes.changed(slot);
                forgotten = forgotten.saturating_add(1);
            }
        }
        None
    }
}
