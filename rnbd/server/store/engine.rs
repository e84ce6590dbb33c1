// SPDX-License-Identifier: GPL-2.0

//! Carries out what the pure [`Store`] decides: the work item of a device calls it, or the
//! thread that submits a request to an idle device.

use block_ext::{
    bio::Bio,
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;

use super::{
    blocks::ReadBack,
    job::{
        Job,
        Piece, //
    },
    lease::Use,
    pages::{
        zeroed,
        Pages,
        REQUESTS,
        SLOTS, //
    },
    sector::Sector,
    volume::{
        StoreIo, //
        Volume,
    },
    writes::durable,
    Crc,
    BLOCK_SIZE, //
};
use crate::{
    proto::flags::RwFlags,
    server::log_limit::CHANGES_LIMIT,
    sidecar::{
        idle::{
            self,
            Idle, //
        },
        layout::Layout,
        pi_cache::Slot,
        queue::{
            Kind,
            Request,
            Ticket,
            Tickets, //
        },
        ring::Ring,
        store::{
            Action,
            Place,
            Rest,
            Store, //
        },
        tuple::Seal,
        Block,
        BLOCK_BYTES, //
    },
};

/// The end of an IO.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// A PI block was read into its slot.
    PiBlockRead(usize),
    /// A PI block was read for the second time, as it could not be before.
    PiBlockReadAgain(usize),
    /// The PI block of a slot was written anew, as it cannot be read.
    PiBlockMended(usize),
    /// A record was written.
    Record,
    /// The data of a request were read, written or discarded.
    Data(Ticket),
    /// A block of a write that has failed was read back.
    ReadBack(Ticket),
    /// The PI block of a slot was written back.
    WrittenBack(usize),
    /// The cache was flushed.
    Flushed,
    /// A step of the growth was taken.
    Grown,
}

/// The result of a run of the engine.
pub(super) struct Run {
    /// The engine has nothing left to do now.
    pub(super) is_complete: bool,
    /// No IO is in flight either, and the device is being drained.
    pub(super) is_drained: bool,
    /// The most requests at a time.
    pub(super) together: u32,
}

impl Run {
    /// Returns the result of a run while the device may not be used: nothing is started.
    const fn suspended() -> Self {
        Self {
            is_complete: true,
            is_drained: false,
            together: 0,
        }
    }
}

/// The maximum number of IO in flight: one for each request, one for each slot, a record, a flush,
/// a step of a growth.
pub(super) const EVENTS_MAX: usize = REQUESTS + SLOTS + 3;

/// The state of a device with a sidecar.
pub(super) struct Engine {
    pub(super) layout: Layout,
    pub(super) store: Store<KVec<Place>, KVec<Slot>>,
    pub(super) pages: Pages,
    pub(super) jobs: KVec<Option<Job>>,
    /// The pieces of requests, by ticket.
    pub(super) pieces: KVec<Option<Piece>>,
    pub(super) read_back: ReadBack,
    pub(super) record: KBox<Block>,
    pub(super) record_image: Arc<PageBlock>,
    /// The CRC of a block of zeroes.
    pub(super) zeroes: u64,
    /// A request of which not all pieces are started.
    waiting: Option<usize>,
    /// The places of requests, and of those that wait no more for their flush.
    used: Tickets,
    resumed: Tickets,
    /// The index of the client queue of the last request.
    turn: usize,
    pub(super) in_flight: usize,
    idle: Idle,
    /// The clock will tick.
    has_clock: bool,
    has_told: bool,
    /// The request of the scrub, while a piece of it is being read.
    pub(super) scrub: Option<Ticket>,
}

/// Allocates `count` places for nothing.
fn nothing<T>(count: usize) -> Result<KVec<Option<T>>> {
    let mut all = KVec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        all.push(None, GFP_KERNEL)?;
    }
    Ok(all)
}

impl Engine {
    /// Allocates the state of a device whose journal was replayed. `is_volatile`: it may have a
    /// volatile cache. In a frame of its own, and not on the caller's stack: both are deep in an
    /// OPEN.
    #[inline(never)]
    pub(super) fn new(
        layout: Layout,
        seal: Seal,
        ring: Ring,
        is_volatile: bool,
    ) -> Result<KBox<Self>> {
        let slots = KVec::from_elem(Slot::default(), SLOTS, GFP_KERNEL)?;
        let record = zeroed()?;
        let engine = Self {
            layout,
            store: Store::new(seal, ring, is_volatile, nothing(REQUESTS)?, slots),
            pages: Pages::new()?,
            jobs: nothing(REQUESTS)?,
            pieces: nothing(REQUESTS)?,
            read_back: ReadBack::new()?,
            zeroes: crate::sidecar::Checksum::crc64(&Crc, &record[..]),
            record,
            record_image: Arc::new(PageBlock::new(0)?, GFP_KERNEL)?,
            waiting: None,
            used: Tickets::NONE,
            resumed: Tickets::NONE,
            turn: 0,
            in_flight: 0,
            idle: Idle::default(),
            has_clock: false,
            has_told: false,
            scrub: None,
        };
        Ok(KBox::new(engine, GFP_KERNEL)?)
    }

    /// Returns whether a replay would find nothing to do.
    pub(super) fn is_clean(&self) -> bool {
        self.store.is_clean()
    }

    /// Does all that can be done now, in `rounds` at most.
    pub(super) fn run(&mut self, volume: &Arc<Volume>, rounds: u32) -> Run {
        let (mut together, mut is_idle, mut is_draining) = (0, false, false);
        for _ in 0..rounds {
            volume.look();
            // What is asked for after this look has news of its own.
            is_draining = volume.is_draining();
            self.look_at_clock(volume);
            is_idle = true;
            while let Some(ended) = volume.next_ended() {
                self.ended(volume, ended);
                is_idle = false;
            }
            let lease = volume.lease().state();
            match lease {
                Use::Permitted => self.store.permit(true),
                // IO of a device that answers with errors is one before it is begun.
                Use::Failing => self.hold(),
                // The keeper of the mark says when to go on.
                Use::NotNow => {
                    volume.lease().tell_wait(volume.device());
                    return Run::suspended();
                }
                Use::Lost => {
                    self.hold();
                    self.store.fail();
                    self.has_told = true;
                }
            }
            let rests = is_draining || !lease.begins_background_work();
            is_idle &= rests || !(self.start_growth_step(volume) | self.start_scrub_piece(volume));
            is_idle &= !self.take_requests(volume);
            together = self.used.len().max(together);
            self.store.rest(match is_draining {
                true => Rest::Drain,
                false => self.idle.rest(),
            });
            while let Some(action) = self.next_action(volume, &mut is_idle) {
                self.act(volume, action);
            }
            if is_idle {
                self.tell(volume);
                break;
            }
        }
        if !is_draining {
            self.set_clock(volume);
        }
        Run {
            is_complete: is_idle,
            is_drained: is_draining && is_idle && self.in_flight == 0,
            together,
        }
    }

    /// Returns what is to be done, while the lease lasts: each bio may wait for longer than that.
    fn next_action(&mut self, volume: &Volume, is_idle: &mut bool) -> Option<Action> {
        let is_over = volume.lease().state() == Use::NotNow;
        let action = if is_over { None } else { self.store.poll() };
        *is_idle &= !is_over && action.is_none();
        action
    }

    /// Counts a tick of the clock.
    fn look_at_clock(&mut self, volume: &Volume) {
        if self.has_clock && volume.take_tick() {
            self.has_clock = false;
            self.idle.tick();
        }
    }

    /// Lets the clock tick once more if something is to be done when the device rests.
    fn set_clock(&mut self, volume: &Arc<Volume>) {
        if !self.has_clock && self.store.gains_by_rest() {
            self.has_clock = true;
            Volume::tick_in(volume, idle::TICK_MS);
        }
    }

    /// Logs once that the device takes no writes any more.
    fn tell(&mut self, volume: &Volume) {
        if self.store.has_failed() && !self.has_told {
            self.has_told = true;
            if CHANGES_LIMIT.allow().is_none() {
                return;
            }
            let name = volume.device().name().unwrap_or_default();
            pr_err!(
                "{name}: a write of the sidecar, one with FUA, or a flush has failed: no more \
                 writes until the device is closed and opened again\n"
            );
        }
    }

    /// Starts requests that wait, as many as there is room for.
    fn take_requests(&mut self, volume: &Arc<Volume>) -> bool {
        let mut has_started = false;
        loop {
            if self.waiting.is_none() {
                self.waiting = self.resumed.iter().next();
                self.resumed.remove(self.waiting.unwrap_or(REQUESTS));
            }
            if let Some(at) = self.waiting {
                if !self.start_pieces(volume, at) {
                    return has_started;
                }
                self.waiting = None;
                has_started = true;
            }
            let free = self.used.first_free();
            if free >= REQUESTS {
                return has_started;
            }
            let Some((operation, client_queue)) = volume.next_request(&mut self.turn) else {
                return has_started;
            };
            let Some(job) = Job::new(operation, client_queue, volume.data_blocks()) else {
                continue;
            };
            if let Some(place) = self.jobs.get_mut(free) {
                *place = Some(job);
                self.used.insert(free);
            }
            self.waiting = Some(free);
        }
    }

    /// Starts the pieces of a request; returns `false` if there is no room for the next one.
    fn start_pieces(&mut self, volume: &Arc<Volume>, at: usize) -> bool {
        loop {
            let Some(Some(job)) = self.jobs.get_mut(at) else {
                return true;
            };
            let Some(piece) = job.next_piece(at, &self.layout) else {
                self.finish(at);
                return true;
            };
            let first = match piece.kind {
                Kind::Flush => 0,
                _ => job.block(piece.offset),
            };
            let request = Request::new(piece.kind, first, piece.blocks, volume.data_blocks());
            let Some(request) = request else {
                job.fail(EIO);
                continue;
            };
            let Some(ticket) = self.store.submit(request) else {
                return false;
            };
            if piece.kind != Kind::Read {
                self.idle.worked();
            }
            job.started(&piece);
            if let Some(place) = self.pieces.get_mut(ticket) {
                *place = Some(piece);
            }
            if matches!(piece.kind, Kind::Write { .. }) {
                self.make_tuples(volume.seal(), ticket, &piece);
            }
        }
    }

    /// Answers a request if nothing is left to do.
    fn finish(&mut self, at: usize) {
        let is_finished = |job: &&mut Option<Job>| job.as_ref().is_some_and(Job::is_finished);
        let finished = self.jobs.get_mut(at).filter(is_finished);
        if let Some(job) = finished.and_then(Option::take) {
            self.used.remove(at);
            self.resumed.remove(at);
            job.answer();
        }
    }

    /// Does what the store wants.
    fn act(&mut self, volume: &Arc<Volume>, action: Action) {
        match action {
            Action::ReadPiBlock { slot, .. } => {
                self.read_pi_block(volume, Event::PiBlockRead(slot), slot);
            }
            Action::WriteRecord { head, fua } => self.write_record(volume, head, fua),
            Action::Data { ticket, .. } if self.is_scrub(ticket) => {
                self.read_scrub_piece(volume, ticket);
            }
            Action::Data { ticket, fua } => self.start_data(volume, ticket, fua),
            Action::ReadBack(ticket) => self.read_back(volume, ticket),
            Action::WriteBack {
                slot,
                group,
                part,
                fua,
            } => self.write_back(volume, slot, (group, part), fua),
            Action::Flush => self.flush(volume),
            Action::Answer { ticket, .. } if self.is_scrub(ticket) => {
                self.scrub_piece_ended(volume)
            }
            Action::Answer { ticket, is_ok } => self.piece_ended(ticket, is_ok),
        }
    }

    pub(super) fn piece_ended(&mut self, ticket: Ticket, is_ok: bool) {
        let piece = self.pieces.get_mut(ticket).and_then(Option::take);
        let Some(piece) = piece else {
            return;
        };
        if piece.kind != Kind::Read {
            // A flush may take longer than a device rests: what it has ended needs a mark as well.
            self.idle.worked();
        }
        if let Some(Some(job)) = self.jobs.get_mut(piece.job) {
            job.ended(&piece, is_ok);
            if job.is_resumed() && self.waiting != Some(piece.job) {
                self.resumed.insert(piece.job);
            }
        }
        if self.waiting != Some(piece.job) {
            self.finish(piece.job);
        }
    }

    /// Starts the IO of the data of a request.
    fn start_data(&mut self, volume: &Arc<Volume>, ticket: Ticket, fua: bool) {
        let piece = self.pieces.get(ticket).copied().flatten();
        let job = piece.and_then(|piece| self.jobs.get(piece.job)?.as_ref());
        let (Some(piece), Some(job)) = (piece, job) else {
            return self.data_ended(ticket, Err(EIO));
        };
        let at = self.layout.data(job.block(piece.offset));
        let at = Sector::of(at.map(|(at, _)| at));
        let len = u32::from(piece.blocks).saturating_mul(BLOCK_SIZE);
        let event = Event::Data(ticket);
        let op = match piece.kind {
            Kind::Read => Op::Read,
            Kind::Write { .. } | Kind::Flush => Op::Write,
            Kind::Discard => {
                let at = at.filter(|_| job.discards());
                return self.start_discard(volume, ticket, at, len);
            }
        };
        let sync = match job.request().rw.flags.has(RwFlags::SYNC) {
            true => Flags::SYNC,
            false => Flags::NONE,
        };
        let prio = job.request().prio;
        let offset = (piece.offset as usize).saturating_mul(BLOCK_BYTES);
        let range = job.pages().map(|pages| (pages.clone(), offset, len));
        self.submit_range(volume, event, (op, durable(fua) | sync, prio), at, range);
    }

    /// Discards blocks on the device, which need not: they read as zeroes anyway.
    fn start_discard(
        &mut self,
        volume: &Arc<Volume>,
        ticket: Ticket,
        at: Option<Sector>,
        len: u32,
    ) {
        let can_discard = volume.device().max_discard_sectors() != 0;
        let Some(at) = at.filter(|_| can_discard) else {
            return self.data_ended(ticket, Ok(()));
        };
        self.in_flight = self.in_flight.saturating_add(1);
        let io = StoreIo::new(volume.clone(), Event::Data(ticket));
        let mut bio = Bio::new(io, Op::Discard, Flags::NONE, at.number());
        // Dropping the bio ends it with an error.
        if bio.set_len_bytes(len).is_ok() && Self::may_begin(volume, &bio) {
            bio.submit();
        }
    }
}
