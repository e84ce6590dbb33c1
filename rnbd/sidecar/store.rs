// SPDX-License-Identifier: GPL-2.0

//! An open device: what may be written when.
//!
//! ```text
//! request ── earlier ones have ended ── tuples in memory ── record durable ── data ── answer
//!                                                                              │
//!                                     tail ── flush ── write-back ── (later) ──┘
//! ```
//!
//! The caller does what [`Store::poll`] returns, and reports the end of each. It has the PI blocks
//! ([`Memory`]) and the data; this code has the order:
//!
//! - data are written when the record with their tuples is durable;
//! - the tuples in memory change when the data are written, so a PI block on the device never has
//!   a tuple whose record is not durable;
//! - a block that was written for the first time is written again only when its first data are
//!   durable: else a replay could not tell a torn second write from no write at all, as no tuple
//!   describes what was there before;
//! - a record is settled by a flush that starts when its data and its PI blocks are written;
//! - the next record says which data are durable, so that a replay does not take older ones for
//!   those of a write that has not reached the device;
//! - its slot is used again when it is settled, and one other slot was free meanwhile.
//!
//! When a write of a record, of a PI block, one with FUA, or a flush fails, the store serves
//! reads only: the journal is sufficient to settle everything when the device is opened again.

mod action;
mod cached;
mod ends;
mod growing;
mod refused;
mod stages;
mod tuples;

use core::borrow::BorrowMut;

pub use self::action::{
    Action,
    Memory,
    Rest, //
};
use self::{
    cached::Cached,
    stages::{
        Stage,
        Stages, //
    },
};
use super::{
    pi_cache::{
        Load,
        PiCache,
        Slot, //
    },
    queue::{
        self,
        Kind,
        Queue,
        Queued,
        Request,
        Ticket, //
    },
    record::ENTRIES_MAX,
    ring::Ring,
    tuple::Seal, //
};

/// The number of PI blocks that are written back together.
const WRITE_BACKS_MAX: usize = 4;

/// The state of a request in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    stage: Stage,
    slots: [Option<usize>; 2],
    /// The record of a write that is started.
    sequence: u64,
}

/// A place for a request in flight.
pub type Place = queue::Place<State>;

/// The store of an open device, with its requests in the places `R` and PI blocks in the slots `H`:
/// arrays, or vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Store<R, H> {
    seal: Seal,
    ring: Ring,
    cache: PiCache<H>,
    queue: Queue<State, R>,
    stages: Stages,
    /// The record before which the flush in flight settles all.
    flushing: Option<u64>,
    /// The records whose data were written and may not be durable.
    cached: Cached,
    is_volatile: bool,
    rest: Rest,
    has_failed: bool,
    /// The device may not be used for now.
    is_held: bool,
}

/// A store in arrays.
pub type ArrayStore<const REQUESTS: usize, const SLOTS: usize> =
    Store<[Place; REQUESTS], [Slot; SLOTS]>;

impl<const REQUESTS: usize, const SLOTS: usize> ArrayStore<REQUESTS, SLOTS> {
    /// Opens a device as [`new`](Self::new) does, with empty arrays.
    pub fn in_arrays(seal: Seal, ring: Ring, is_volatile: bool) -> Self {
        const { assert!(SLOTS >= 2, "a request needs two") };
        let (places, slots) = ([None; REQUESTS], [Slot::default(); SLOTS]);
        Self::new(seal, ring, is_volatile, places, slots)
    }
}

impl<R: BorrowMut<[Place]>, H: BorrowMut<[Slot]>> Store<R, H> {
    /// Opens a device whose journal has been replayed. `is_volatile`: it may have a volatile cache.
    /// The places have no requests, and the slots, at least two, are free.
    pub const fn new(seal: Seal, ring: Ring, is_volatile: bool, places: R, slots: H) -> Self {
        Self {
            seal,
            ring,
            cache: PiCache::new(slots),
            queue: Queue::new(places),
            stages: Stages::NONE,
            flushing: None,
            cached: Cached::NONE,
            is_volatile,
            rest: Rest::None,
            has_failed: false,
            is_held: false,
        }
    }

    /// Returns the seal of the tuples.
    pub const fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Adds a request; `None` if there are as many as can be in flight.
    pub fn submit(&mut self, request: Request) -> Option<Ticket> {
        let state = State {
            stage: Stage::Waiting,
            slots: [None; 2],
            sequence: 0,
        };
        let ticket = self.queue.add(request, state)?;
        self.stages.insert(Stage::Waiting, ticket);
        Some(ticket)
    }

    /// Returns a request in flight.
    pub fn request(&self, ticket: Ticket) -> Option<&Request> {
        Some(&self.queue.get(ticket)?.request)
    }

    /// Says what shall be done beside requests from now on.
    pub fn rest(&mut self, rest: Rest) {
        self.rest = rest;
    }

    /// Returns whether a replay would find nothing to do.
    pub fn is_clean(&self) -> bool {
        self.queue.iter().next().is_none() && self.ring.is_empty()
    }

    /// Returns whether something is to be done when the device rests.
    pub const fn gains_by_rest(&self) -> bool {
        !self.ring.is_empty() && !self.has_failed
    }

    /// Returns whether the store serves reads only, since a write of its own has failed.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Ends writes: a write of the store's own has failed, or a flush, for whom it ever was. A
    /// device may tell only once that its cache is lost, with data of requests that were answered.
    pub fn fail(&mut self) {
        self.has_failed = true;
        // No flush ends that any more, and reads need the slots. Writes, which would wait, fail.
        self.cache.forget_fresh();
    }

    /// Returns the next thing to do; `None` if the store waits for the end of others, or has
    /// nothing to do.
    pub fn poll(&mut self) -> Option<Action> {
        let is_starved = self.advance();
        self.answer()
            .or_else(|| self.start_data())
            .or_else(|| {
                let (slot, group) = self.cache.start_load()?;
                Some(Action::ReadPiBlock { slot, group })
            })
            .or_else(|| self.start_record())
            .or_else(|| self.start_write_back(is_starved))
            .or_else(|| self.start_flush(is_starved))
    }

    /// The oldest request at a stage.
    fn at_stage(&self, stage: Stage) -> Option<Ticket> {
        self.queue.oldest(self.stages.at(stage), |_| true)
    }

    fn set_stage(&mut self, ticket: Ticket, stage: Stage) {
        if let Some(queued) = self.queue.get_mut(ticket) {
            self.stages.remove(queued.state.stage, ticket);
            self.stages.insert(stage, ticket);
            queued.state.stage = stage;
        }
    }

    /// Lets requests go on that wait for others, for slots, or for PI blocks; returns whether one
    /// waits for slots.
    fn advance(&mut self) -> bool {
        let is_starved = self.start_waiting();
        for ticket in self.stages.at_one_of([Stage::Load, Stage::Fresh]).iter() {
            if let Some(stage) = self.queue.get(ticket).map(|queued| self.loaded(queued)) {
                self.set_stage(ticket, stage);
            }
        }
        if self.begins_nothing() {
            for ticket in self.stages.at(Stage::Ready).iter() {
                self.set_stage(ticket, Stage::Done(false));
            }
        }
        is_starved
    }

    /// Gives requests their slots that no earlier one excludes; returns whether there are too few.
    fn start_waiting(&mut self) -> bool {
        let mut left = self.stages.at(Stage::Waiting);
        while let Some(ticket) = self.queue.oldest(left, |_| true) {
            left.remove(ticket);
            let Some(queued) = self.queue.get(ticket) else {
                continue;
            };
            if !self.queue.may_run(queued) {
                // One that is to be read back may be before it, for as long as the device fails.
                if self.is_held {
                    self.set_stage(ticket, Stage::Done(false));
                }
                continue;
            }
            // The oldest one gets its slots first, else it might wait for ever.
            let stage = match self.cache.pin(queued.request.groups()) {
                Some(slots) => {
                    if let Some(queued) = self.queue.get_mut(ticket) {
                        queued.state.slots = slots;
                    }
                    Stage::Load
                }
                None if self.begins_nothing() => Stage::Done(false),
                None => return true,
            };
            self.set_stage(ticket, stage);
        }
        false
    }

    /// The stage of a request that waits for its PI blocks.
    fn loaded(&self, queued: &Queued<State>) -> Stage {
        let loads = queued.state.slots.map(|slot| match slot {
            Some(slot) => self.cache.load(slot),
            None => Load::Ready,
        });
        match queued.request.kind() {
            _ if loads.contains(&Load::Failed) => Stage::Done(false),
            _ if loads.contains(&Load::Pending) => Stage::Load,
            Kind::Read => Stage::Data,
            _ if self.begins_nothing() => Stage::Done(false),
            Kind::Write { .. } if self.has_fresh(queued) => Stage::Fresh,
            _ => Stage::Ready,
        }
    }

    fn answer(&mut self) -> Option<Action> {
        let ticket = self.at_stage(Stage::Done(true))?;
        let queued = self.queue.remove(ticket)?;
        self.stages.remove(queued.state.stage, ticket);
        let is_ok = queued.state.stage == Stage::Done(true);
        for slot in queued.state.slots.into_iter().flatten() {
            self.cache.unpin(slot);
        }
        Some(Action::Answer { ticket, is_ok })
    }

    fn start_data(&mut self) -> Option<Action> {
        if let Some(ticket) = self.to_read_back() {
            self.set_stage(ticket, Stage::InReadBack);
            return Some(Action::ReadBack(ticket));
        }
        let ticket = self.at_stage(Stage::Data)?;
        self.set_stage(ticket, Stage::InData);
        let fua = self.queue.get(ticket).is_some_and(Self::is_fua);
        Some(Action::Data { ticket, fua })
    }

    fn is_write(queued: &Queued<State>) -> bool {
        matches!(queued.request.kind(), Kind::Write { .. } | Kind::Discard)
    }

    fn is_fua(queued: &Queued<State>) -> bool {
        queued.request.kind() == Kind::Write { fua: true }
    }

    fn is_flush(queued: &Queued<State>) -> bool {
        queued.request.kind() == Kind::Flush
    }

    /// The oldest request of a kind that waits for a record, or a flush.
    fn ready(&self, is_wanted: impl Fn(&Queued<State>) -> bool) -> Option<Ticket> {
        self.queue.oldest(self.stages.at(Stage::Ready), is_wanted)
    }

    /// Starts a record with the writes that are ready, or a mark.
    fn start_record(&mut self) -> Option<Action> {
        if self.begins_nothing() {
            return None;
        }
        let mut entries = 0usize;
        while self.ring.has_room() {
            let Some(ticket) = self.ready(Self::is_write) else {
                break;
            };
            let queued = self.queue.get_mut(ticket)?;
            let sum = entries.saturating_add(queued.request.entries());
            if sum > ENTRIES_MAX {
                break;
            }
            entries = sum;
            queued.state.sequence = self.ring.next();
            self.set_stage(ticket, Stage::Started);
        }
        let is_mark = entries == 0;
        let is_due = !is_mark
            || match self.rest {
                Rest::None => false,
                Rest::Pause => self.ring.gains_by_mark(self.flushed_below()),
                Rest::Drain => self.ring.can_be_emptied(),
            };
        let fua = true;
        is_due.then(|| {
            let flushed = self.flushed_below();
            let head = self.ring.start(is_mark, flushed);
            Action::WriteRecord { head, fua }
        })
    }

    /// The data of all records below this one are durable, by the device's word.
    fn flushed_below(&self) -> u64 {
        let cached = self.cached.lowest(self.ring.settled());
        let lowest = [self.lowest_without_data(), cached];
        let lowest = lowest.into_iter().flatten().min();
        lowest.unwrap_or(self.ring.next())
    }

    /// The record that was started is durable, or its write has failed.
    pub fn record_written(&mut self, is_durable: bool) {
        let is_durable = is_durable && !self.has_failed;
        self.ring.end(is_durable);
        let stage = if is_durable {
            Stage::Data
        } else {
            self.fail();
            Stage::Done(false)
        };
        self.end_record(stage);
    }

    /// The data of a request were read, written or discarded.
    pub fn data_done(&mut self, ticket: Ticket, is_ok: bool, memory: &mut impl Memory) {
        let Some(queued) = self.queue.get(ticket).copied() else {
            return;
        };
        let is_ok = self.is_believed(&queued, is_ok);
        let stage = match queued.request.kind() {
            Kind::Read | Kind::Flush => Stage::Done(is_ok),
            Kind::Write { .. } if !is_ok => Stage::Failed,
            // Discarded blocks read as zeroes even if the device kept their data.
            Kind::Write { .. } | Kind::Discard => {
                let is_cached = queued.request.kind() == Kind::Write { fua: false };
                if is_cached && self.is_volatile {
                    self.cached.add(queued.state.sequence);
                }
                for offset in 0..queued.request.blocks() {
                    let tuple = self.new_tuple(ticket, &queued.request, memory, offset);
                    self.note_fresh(&queued, memory, offset, is_cached);
                    self.set_tuple(&queued, memory, offset, &tuple);
                }
                Stage::Done(true)
            }
        };
        self.set_stage(ticket, stage);
    }

    /// A PI block was read into its slot, or cannot be read.
    pub fn pi_block_read(&mut self, slot: usize, is_ok: bool) {
        self.cache.end_load(slot, is_ok);
    }

    /// Whether PI blocks should be written back and settled now.
    fn is_pressed(&self, is_starved: bool) -> bool {
        let slots_left = self.cache.dirty_count().saturating_mul(2) < self.cache.slots();
        is_starved || self.rest == Rest::Drain || !slots_left || self.ring.is_half_used()
    }

    fn start_write_back(&mut self, is_starved: bool) -> Option<Action> {
        let is_allowed = !self.begins_nothing() && self.cache.writing_count() < WRITE_BACKS_MAX;
        if !is_allowed || !self.is_pressed(is_starved) {
            return None;
        }
        let (slot, group, part) = self.cache.start_write(self.ring.unit())?;
        // The flush that settles its records makes it durable.
        let fua = false;
        Some(Action::WriteBack {
            slot,
            group,
            part,
            fua,
        })
    }

    /// A PI block was written back, or its write has failed.
    pub fn written_back(&mut self, slot: usize, is_ok: bool) {
        self.cache.end_write(slot, is_ok);
        if !is_ok {
            self.fail();
        }
    }

    /// The lowest record with data that are not written yet.
    fn lowest_without_data(&self) -> Option<u64> {
        let with_record = self.stages.at_one_of([
            Stage::Started,
            Stage::Data,
            Stage::InData,
            Stage::Failed,
            Stage::InReadBack,
        ]);
        let writes = self.queue.those(with_record);
        let writes = writes.filter(|(_, queued)| Self::is_write(queued));
        writes.map(|(_, queued)| queued.state.sequence).min()
    }

    /// All records before this one have data and PI blocks on the device or in its cache.
    fn floor(&self) -> u64 {
        let data = self.lowest_without_data();
        [data, self.cache.floor(), Some(self.ring.next())]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(0)
    }

    /// Starts a flush that a request waits for, or that settles records. `is_starved`: one waits
    /// for slots.
    fn start_flush(&mut self, is_starved: bool) -> Option<Action> {
        if self.flushing.is_some() || self.begins_nothing() {
            return None;
        }
        let is_stuck = || is_starved && self.cache.has_fresh();
        let is_wanted = !self.stages.at(Stage::Fresh).is_empty()
            || self.ready(Self::is_flush).is_some()
            || is_stuck();
        let is_due =
            self.ring.is_half_used() || (self.rest == Rest::Drain && !self.ring.is_empty());
        if !is_wanted && !is_due {
            return None;
        }
        let floor = self.floor();
        if !is_wanted && floor <= self.ring.settled() {
            return None;
        }
        while let Some(ticket) = self.ready(Self::is_flush) {
            self.set_stage(ticket, Stage::Started);
        }
        self.flushing = Some(floor);
        self.cache.start_flush();
        self.cached.start_flush();
        Some(Action::Flush)
    }

    /// The flush has ended. Only what had ended before it started is durable.
    pub fn flushed(&mut self, is_ok: bool) {
        let floor = self.flushing.take();
        // The failure of another one meanwhile may be all that is said of a lost cache.
        let is_ok = is_ok && !self.has_failed;
        if !is_ok {
            self.fail();
        } else if let Some(floor) = floor {
            self.ring.settle(floor);
            self.cache.end_flush();
            self.cached.end_flush();
        }
        self.end_flushes(is_ok);
    }
}
