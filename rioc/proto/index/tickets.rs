// SPDX-License-Identifier: GPL-2.0

//! The operations that clients have sent last, as a log keeps them: in the batch of the operation
//! itself, so that both are there after a crash, or neither.
//!
//! A client's *incarnation* is what is known of its operations, from its first attach until it is
//! forgotten, over all crashes. Its number is in each entry: that of a client that was forgotten,
//! and has come again, is another one.

use super::{
    super::{
        slot::{
            Kept,
            Memory,
            Slot,
            NONE, //
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

/// The bits of the number of an incarnation that are random: one that no log has kept may have had
/// the same place in the order.
const RANDOM_BITS: u32 = 24;
const RANDOM_MASK: u64 = !(u64::MAX << RANDOM_BITS);

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Goes through the slots of lanes, those of the client that came last first.
    fn lanes(&self) -> impl Iterator<Item = (u32, &Kept)> {
        let mut next = self.lanes;
        core::iter::from_fn(move || {
            let slot = next;
            let kept = self.slots.ticket(slot)?;
            next = kept.next;
            Some((slot, kept))
        })
    }

    /// A slot of a lane is in the list from now on.
    pub(super) fn link_lane(&mut self, slot: u32) {
        let first = self.lanes;
        if let Some(kept) = self.slots.ticket_mut(slot) {
            kept.next = first;
            self.lanes = slot;
            self.incarnations = self.incarnations.max(kept.incarnation >> RANDOM_BITS);
        }
    }

    /// Returns the number of the next incarnation, which no other one has had.
    const fn next_incarnation(&self, random: u64) -> u64 {
        let next = self.incarnations.saturating_add(1);
        next << RANDOM_BITS | random & RANDOM_MASK
    }

    /// Returns the client of the next incarnation behind one, and its number.
    pub fn client_after(&self, incarnation: u64) -> Option<([u64; 2], u64)> {
        let later = self.lanes().map(|(_, kept)| kept);
        let later = later.filter(|kept| kept.incarnation > incarnation);
        let next = later.min_by_key(|kept| kept.incarnation);
        next.map(|kept| (kept.client, kept.incarnation))
    }

    fn lanes_of(&self, client: [u64; 2]) -> u32 {
        let own = self.lanes().filter(|(_, kept)| kept.client == client);
        own.fold(0, |count, _| count.saturating_add(1))
    }

    /// Gives each lane of a client that begins its slot, with what a log has kept of it; returns
    /// the number of its incarnation. `gone` is forgotten for it.
    ///
    /// # Errors
    ///
    /// Returns that there are too few slots: nothing has changed, and none is forgotten.
    pub fn attach(
        &mut self,
        (client, random): ([u64; 2], u64),
        tickets: &mut Tickets<impl AsMut<[Lane]>>,
        gone: Option<[u64; 2]>,
        changes: &mut impl Changes,
    ) -> Result<u64, Refused> {
        let mut incarnation = None;
        for (slot, kept) in self.lanes().filter(|(_, kept)| kept.client == client) {
            incarnation = Some(kept.incarnation);
            if let Some(ticket) = Ticket::from_word(kept.word) {
                tickets.keep(ticket.lane(), slot, Some(ticket));
            }
        }
        let missing = (0..tickets.count()).filter(|lane| tickets.slot(*lane).is_none());
        let missing = missing.fold(0u32, |count, _| count.saturating_add(1));
        let freed = gone.map_or(0, |gone| self.lanes_of(gone));
        self.require(missing.saturating_sub(freed))?;
        if let Some(gone) = gone {
            self.forget(gone, changes);
        }
        let incarnation = incarnation.unwrap_or_else(|| self.next_incarnation(random));
        for lane in 0..tickets.count() {
            if tickets.slot(lane).is_none() {
                let kept = Kept {
                    client,
                    word: 0,
                    incarnation,
                    next: NONE,
                };
                let slot = self.slots.take(Slot::Ticket(kept));
                let slot = slot.ok_or(Refused::NoSlots)?;
                tickets.keep(lane, slot, None);
                self.link_lane(slot);
            }
        }
        Ok(incarnation)
    }

    /// An operation of a client is carried out: a copy of it that comes later is none.
    pub fn note(&mut self, slot: u32, ticket: Ticket, changes: &mut impl Changes) {
        if let Some(kept) = self.slots.ticket_mut(slot) {
            kept.word = ticket.word();
            changes.changed(slot);
        }
    }

    /// Forgets a client that is gone for good, of which at most
    /// [`LANES_MAX`](super::super::ticket::LANES_MAX) slots change.
    fn forget(&mut self, client: [u64; 2], changes: &mut impl Changes) {
        let (mut before, mut next) = (NONE, self.lanes);
        while let Some(kept) = self.slots.ticket(next).copied() {
            let slot = core::mem::replace(&mut next, kept.next);
            if kept.client != client {
                before = slot;
                continue;
            }
            match self.slots.ticket_mut(before) {
                Some(before) => before.next = kept.next,
                None => self.lanes = kept.next,
            }
            self.slots.give_back(slot);
            if kept.word != 0 {
                changes.changed(slot);
            }
        }
    }
}
