// SPDX-License-Identifier: GPL-2.0

//! The tuples of requests: into the record, into the PI blocks in memory, and checks against them.

use core::borrow::BorrowMut;

use super::super::{
    group,
    pi_cache::Slot,
    queue::{
        Kind,
        Queued,
        Request,
        Ticket, //
    },
    record::{
        Builder,
        Entry,
        Head, //
    },
    replay::{
        self,
        Candidate,
        Found, //
    },
    tuple::{
        Meaning,
        Tuple,
        Verdict, //
    },
    Block,
    Checksum, //
};
use super::{
    Memory,
    Place,
    Stage,
    State,
    Store, //
};

impl<R: BorrowMut<[Place]>, H: BorrowMut<[Slot]>> Store<R, H> {
    /// Fills the record that was started in `block`; returns what is to be written to its slot.
    pub fn fill<'b>(
        &self,
        head: Head,
        memory: &impl Memory,
        block: &'b mut Block,
        crc: &impl Checksum,
    ) -> &'b [u8] {
        let mut builder = Builder::new(block, self.ring.unit());
        for (ticket, queued) in self.queue.those(self.stages.at(Stage::Started)) {
            if !Self::is_write(queued) {
                continue;
            }
            for (offset, blocks) in self.runs(&queued.request) {
                let first = queued.request.first().wrapping_add(offset.into());
                let entry = Entry {
                    first,
                    blocks,
                    old: self.tuple(queued, memory, first).unwrap_or_default(),
                    new: self.new_tuple(ticket, &queued.request, memory, offset),
                };
                // `start_record` has counted the entries.
                let _ = builder.push(&entry);
            }
        }
        builder.finish(head, &self.seal, crc)
    }

    /// The entries of a request: offset and number of blocks.
    fn runs(&self, request: &Request) -> impl Iterator<Item = (u16, u16)> {
        let is_discard = request.kind() == Kind::Discard;
        let (first, blocks) = (request.first(), request.blocks());
        let mut offset = 0u16;
        core::iter::from_fn(move || {
            let left = blocks.checked_sub(offset).filter(|left| *left != 0)?;
            let (_, index) = group::place(first.wrapping_add(offset.into()));
            let in_group = (group::GROUP_BLOCKS as u16).saturating_sub(index.into());
            let run = if is_discard { left.min(in_group) } else { 1 };
            let item = (offset, run);
            offset = offset.saturating_add(run);
            Some(item)
        })
    }

    fn slot_of(queued: &Queued<State>, block: u64) -> Option<usize> {
        let (group, _) = group::place(block);
        let found = queued
            .request
            .groups()
            .iter()
            .position(|g| *g == Some(group))?;
        queued.state.slots.get(found).copied().flatten()
    }

    fn tuple(&self, queued: &Queued<State>, memory: &impl Memory, block: u64) -> Option<Tuple> {
        let slot = Self::slot_of(queued, block)?;
        Some(group::tuple(memory.pi_block(slot), group::place(block).1))
    }

    pub(super) fn new_tuple(
        &self,
        ticket: Ticket,
        request: &Request,
        memory: &impl Memory,
        offset: u16,
    ) -> Tuple {
        match request.kind() {
            Kind::Discard => self
                .seal
                .unwritten(request.first().wrapping_add(offset.into())),
            _ => memory.tuple(ticket, offset),
        }
    }

    /// Returns whether a request is to a fresh block.
    pub(super) fn has_fresh(&self, queued: &Queued<State>) -> bool {
        self.is_volatile
            && (queued.request.first()..queued.request.end()).any(|block| {
                let slot = Self::slot_of(queued, block);
                slot.is_some_and(|slot| self.cache.is_fresh(slot, group::place(block).1))
            })
    }

    /// The data of a request are written: the block at `offset` in it is fresh if it had no data
    /// and the device may have them in its cache only (`is_cached`).
    pub(super) fn note_fresh(
        &mut self,
        queued: &Queued<State>,
        memory: &impl Memory,
        offset: u16,
        is_cached: bool,
    ) {
        if !self.is_volatile {
            return;
        }
        let block = queued.request.first().wrapping_add(offset.into());
        let old = self.tuple(queued, memory, block).unwrap_or_default();
        let was_unwritten = self.seal.meaning(&old, block) == Meaning::Unwritten;
        if let Some(slot) = Self::slot_of(queued, block) {
            let index = group::place(block).1;
            self.cache
                .set_fresh(slot, index, was_unwritten && is_cached);
        }
    }

    pub(super) fn set_tuple(
        &mut self,
        queued: &Queued<State>,
        memory: &mut impl Memory,
        offset: u16,
        tuple: &Tuple,
    ) {
        let block = queued.request.first().wrapping_add(offset.into());
        if let Some(slot) = Self::slot_of(queued, block) {
            let index = group::place(block).1;
            group::set_tuple(memory.pi_block_mut(slot), index, tuple);
            self.cache.dirty(slot, index, queued.state.sequence);
        }
    }

    /// The data of a write that has failed were read back; `crc_of` returns the CRC of a block by
    /// its offset, or `None` if it could not be read. Each block keeps the tuple that fits it.
    pub fn settle(
        &mut self,
        ticket: Ticket,
        crc_of: impl Fn(u16) -> Option<u64>,
        memory: &mut impl Memory,
    ) {
        let Some(queued) = self.queue.get(ticket).copied() else {
            return;
        };
        for offset in 0..queued.request.blocks() {
            let block = queued.request.first().wrapping_add(offset.into());
            let old = self.tuple(&queued, memory, block).unwrap_or_default();
            let new = memory.tuple(ticket, offset);
            let crc = || crc_of(offset);
            let candidates = [(new, 0), (old, 1)].map(|(tuple, writes)| Candidate {
                tuple,
                writes,
                is_past: false,
            });
            let (tuple, found) = replay::choose(candidates, block, &self.seal, crc);
            if found == Found::Newest {
                // They may be in the cache only: the device has not said that they are written.
                self.note_fresh(&queued, memory, offset, true);
            }
            self.set_tuple(&queued, memory, offset, &tuple);
        }
        let settled = self.ring.settled();
        self.cached.add_failed(queued.state.sequence, settled);
        self.set_stage(ticket, Stage::Done(false));
    }

    /// Returns whether a request reads nothing but blocks without data, which are zeroes whether
    /// the device can read what is at their place or not.
    #[cold]
    pub fn needs_no_data(&self, ticket: Ticket, memory: &impl Memory) -> bool {
        let Some(queued) = self.queue.get(ticket) else {
            return false;
        };
        let is_unwritten = |block| {
            let tuple = self.tuple(queued, memory, block).unwrap_or_default();
            self.seal.meaning(&tuple, block) == Meaning::Unwritten
        };
        queued.request.kind() == Kind::Read
            && (queued.request.first()..queued.request.end()).all(is_unwritten)
    }

    /// Checks a block that a read has read; `offset` counts the request's blocks.
    pub fn check(
        &self,
        ticket: Ticket,
        offset: u16,
        crc: u64,
        memory: &impl Memory,
    ) -> (Verdict, Tuple) {
        let queued = self.queue.get(ticket);
        let block = queued.map_or(0, |queued| {
            queued.request.first().wrapping_add(offset.into())
        });
        let tuple = queued.and_then(|queued| self.tuple(queued, memory, block));
        let tuple = tuple.unwrap_or_default();
        (self.seal.check(&tuple, block, crc), tuple)
    }
}
