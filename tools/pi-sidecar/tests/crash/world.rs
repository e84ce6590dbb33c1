// SPDX-License-Identifier: GPL-2.0

//! The state of everything: the store, the device under it, and the application above it.

mod flushing;
mod growing;
mod pages;
mod wrong;

use std::rc::Rc;

use proto::sidecar::{
    growth::{
        Growth,
        State, //
    },
    layout::Layout,
    queue::{
        Kind,
        Request,
        Ticket, //
    },
    ring::Ring,
    store::{
        Action,
        ArrayStore,
        Memory,
        Rest, //
    },
    superblock::Version,
    Checksum,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        apply,
        change,
        visible,
        Fast,
        Image,
        Shape,
        Write, //
    },
    setting::{
        content,
        Faults,
        Op,
        Setting, //
    },
    Mistake, //
};

pub(crate) use self::wrong::{
    Fault,
    Left,
    Loss, //
};
use self::{
    flushing::Flushing,
    pages::Pages, //
};

pub(crate) const REQUESTS: usize = 4;
pub(crate) const SLOTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Progress {
    Waiting,
    Submitted(Ticket),
    /// Ended with an error.
    Failed,
    Acknowledged,
    Durable,
}

/// The waiter for the end of a write of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Record,
    Data(Ticket),
    PiBlock(usize),
    /// A step of the growth.
    Growth,
    /// Ends without anyone who waits.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    store: ArrayStore<REQUESTS, SLOTS>,
    pages: Pages,
    pub(crate) medium: Image,
    pub(crate) writes: Vec<Write>,
    /// The purpose of each of `writes`, and whether it has FUA.
    purposes: Vec<(Purpose, bool)>,
    /// The flushes of the store and of the growth.
    flushing: [Option<Flushing>; 2],
    growth: Growth,
    /// The layout by which requests are carried out.
    pub(crate) layout: Layout,
    pub(crate) progress: Vec<Progress>,
    /// Operations that were acknowledged when a flush was submitted, by its number.
    covered: Vec<Vec<usize>>,
    rest: Rest,
    /// The record that an operation has its tuples in; 0: none.
    pub(crate) records: Vec<u64>,
    /// The operations that were durable when a record began which is durable now: a replay must not
    /// take older data for theirs.
    pub(crate) told: u32,
    telling: u32,
    /// A write of data that has failed; others of the same request may be running.
    failed: Option<Ticket>,
    pub(crate) fault: Option<Fault>,
}

/// An event that can come next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Submit,
    WriteEnds(usize),
    FlushEnds(usize),
    Pause,
    Drain,
    Grow,
    WriteFails(usize, Left),
    /// A write fails, and the lease ends before it is seen what it has left.
    WriteFailsUnseen(usize, Left),
    FuaFails(usize, Loss),
    WriteIsLost(usize),
    FlushFails(Loss),
    NoPiBlock,
    IsRefused,
    MarkComes,
    BlockChanges(usize),
}

/// Places in `flushing`: the store's flush, and the growth's.
const STORE: usize = 0;
const GROWTH: usize = 1;

impl World {
    pub(crate) fn new(setting: &Setting, medium: Image, ring: Ring) -> Self {
        Self {
            store: ArrayStore::in_arrays(*setting.volume.seal(), ring, setting.is_volatile),
            pages: Pages {
                pi_blocks: std::array::from_fn(|_| Rc::new([0; BLOCK_BYTES])),
                tuples: vec![Vec::new(); REQUESTS],
            },
            medium,
            writes: Vec::new(),
            purposes: Vec::new(),
            flushing: [None, None],
            growth: Growth::new(),
            layout: *setting.volume.layout(),
            progress: vec![Progress::Waiting; setting.ops.len()],
            covered: vec![Vec::new(); setting.ops.len()],
            rest: Rest::None,
            records: vec![0; setting.ops.len()],
            told: 0,
            telling: 0,
            failed: None,
            fault: None,
        }
    }

    /// Returns the events that can come now.
    pub(crate) fn events(&self, setting: &Setting) -> Vec<Event> {
        let mut events = Vec::new();
        if self.progress.contains(&Progress::Waiting) {
            events.push(Event::Submit);
        }
        let running = self.writes.iter().enumerate();
        let running = running.filter(|(_, write)| !write.is_done);
        events.extend(running.map(|(number, _)| Event::WriteEnds(number)));
        let flushing = [STORE, GROWTH].into_iter();
        let flushing = flushing.filter(|whose| self.flushing[*whose].is_some());
        events.extend(flushing.map(Event::FlushEnds));
        if setting.grows && self.growth.state() == State::Idle {
            events.push(Event::Grow);
        }
        if setting.pauses && self.rest == Rest::None {
            events.push(Event::Pause);
        }
        if self.rest != Rest::Drain {
            events.push(Event::Drain);
        }
        if setting.faults != Faults::None && self.fault.is_none() {
            self.add_faults(setting, &mut events);
        }
        events
    }

    /// Lets an event happen, and the store do what it wants; `None` if it cannot happen.
    pub(crate) fn after(&self, setting: &Setting, shape: &mut Shape, event: Event) -> Option<Self> {
        let mut world = self.clone();
        world.store.permit(true);
        match event {
            Event::Submit => {
                // The device does not rest any more, unless it is closed after this.
                if world.rest == Rest::Pause || setting.drains {
                    world.rest = Rest::None;
                }
                world.submit(setting)?;
            }
            Event::WriteEnds(number) => world.write_ends(setting, shape, number),
            Event::WriteFails(number, left) => world.write_fails(setting, shape, number, left),
            Event::WriteFailsUnseen(number, left) => {
                world.write_fails(setting, shape, number, left);
                world.fault = Some(Fault::FailedUnseen { is_over: false });
            }
            Event::WriteIsLost(number) => world.write_is_lost(number),
            Event::FuaFails(number, loss) => world.fua_fails(number, loss),
            Event::FlushFails(loss) => world.flush_fails(loss),
            Event::NoPiBlock => world.fault = Some(Fault::NoPiBlock { is_over: false }),
            Event::IsRefused => world.fault = Some(Fault::Refused { is_over: false }),
            Event::MarkComes => world.mark_comes(setting, shape),
            Event::BlockChanges(place) => {
                world.fault = Some(Fault::Changed(place));
                change(shape, &mut world.medium, place);
            }
            Event::FlushEnds(whose) => world.flush_ends(shape, whose),
            Event::Grow => {
                let blocks = shape.layout.device_blocks();
                let superblock = setting.volume.superblock();
                world.growth.start(superblock, blocks).unwrap();
            }
            Event::Pause => world.rest = Rest::Pause,
            Event::Drain => world.rest = Rest::Drain,
        }
        world.store.rest(world.rest);
        loop {
            while let Some(action) = world.store.poll() {
                world.act(setting, shape, action);
            }
            let Some(step) = world.growth.next_step() else {
                break;
            };
            world.grow(setting, shape, step);
        }
        world.sort();
        Some(world)
    }

    /// The order of writes to different places does not matter.
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.writes.len()).collect();
        order.sort_by_key(|number| self.writes[*number].place);
        self.writes = order.iter().map(|n| self.writes[*n].clone()).collect();
        self.purposes = order.iter().map(|n| self.purposes[*n]).collect();
        for flushing in self.flushing.iter_mut().flatten() {
            let places = order.iter().enumerate();
            let covered = places.filter(|(_, old)| flushing.covered >> **old & 1 != 0);
            flushing.covered = covered.fold(0, |set, (new, _)| set | 1 << new);
        }
    }

    fn submit(&mut self, setting: &Setting) -> Option<()> {
        let number = self.progress.iter().position(|p| *p == Progress::Waiting)?;
        let (kind, first, blocks) = setting.ops[number].request();
        let blocks_max = self.layout.data_blocks();
        // A device that has not grown yet refuses what is behind its end.
        let request = Request::new(kind, first, blocks, blocks_max)?;
        let ticket = self.store.submit(request)?;
        let tuples = (first..first + u64::from(blocks)).map(|block| {
            let data = content(setting.version(number));
            let seal = setting.volume.seal();
            seal.data(block, Fast::RIGHT.crc64(&data), 0).unwrap()
        });
        self.pages.tuples[ticket] = tuples.collect();
        self.progress[number] = Progress::Submitted(ticket);
        if kind == Kind::Flush {
            let is_known = |p: &Progress| *p >= Progress::Acknowledged;
            let known = self.progress.iter().enumerate();
            let known = known.filter(|(_, p)| is_known(p)).map(|(op, _)| op);
            self.covered[number] = known.collect();
        }
        Some(())
    }

    fn op_of(&self, ticket: Ticket) -> usize {
        let submitted = Progress::Submitted(ticket);
        self.progress.iter().position(|p| *p == submitted).unwrap()
    }

    fn put(&mut self, shape: &mut Shape, block: u64, data: &[u8], fua: bool, purpose: Purpose) {
        self.put_from(shape, (block, 0), data, fua, purpose);
    }

    /// Writes from a byte of a block on.
    fn put_from(
        &mut self,
        shape: &mut Shape,
        (block, start): (u64, usize),
        data: &[u8],
        fua: bool,
        purpose: Purpose,
    ) {
        let place = shape.place(block);
        let write = Write {
            place,
            first: shape.first(place, start),
            parts: shape.split_from(place, start, data),
            is_done: false,
        };
        self.writes.push(write);
        self.purposes.push((purpose, fua));
    }

    fn act(&mut self, setting: &Setting, shape: &mut Shape, action: Action) {
        if self.is_refused(&action) {
            return;
        }
        let layout = self.layout;
        match action {
            Action::ReadPiBlock { slot, group } => {
                let place = shape.place(layout.pi_block(group).unwrap());
                if self.fault == Some(Fault::NoPiBlock { is_over: false }) {
                    self.fault = Some(Fault::NoPiBlock { is_over: true });
                    return self.store.pi_block_read(slot, false);
                }
                let parts = visible(shape, &self.medium, &self.writes, place);
                shape.join(place, &parts, self.pages.pi_block_mut(slot));
                self.store.pi_block_read(slot, true);
            }
            Action::WriteRecord { head, fua } => self.write_record(setting, shape, head, fua),
            Action::Data { ticket, fua } => self.start_data(setting, shape, ticket, fua),
            Action::ReadBack(ticket) => self.read_back(setting, shape, ticket),
            Action::WriteBack {
                slot,
                group,
                part,
                fua,
            } => {
                let pi_block = *self.pages.pi_block(slot);
                let at = layout.pi_block(group).unwrap();
                let mut bytes = part.bytes();
                let is_whole = setting.volume.superblock().version == Version::One;
                // All of it, if that was not begun when it was to be.
                let is_again = matches!(self.fault, Some(Fault::Refused { .. }));
                assert!(is_again || (bytes.len() == BLOCK_BYTES) == is_whole);
                if setting.mistake == Mistake::LastSectorLeftOut {
                    bytes.end = (bytes.start + 512).min(bytes.end);
                }
                let start = bytes.start;
                self.put_from(
                    shape,
                    (at, start),
                    &pi_block[bytes],
                    fua,
                    Purpose::PiBlock(slot),
                );
            }
            Action::Flush => {
                let settles = setting.mistake != Mistake::FlushLeftOut;
                self.flush(setting, shape, STORE, settles);
            }
            Action::Answer { ticket, is_ok } => self.answered(setting, ticket, is_ok),
        }
    }

    fn answered(&mut self, setting: &Setting, ticket: Ticket, is_ok: bool) {
        let op = self.op_of(ticket);
        if !is_ok {
            assert!(self.fault.is_some(), "nothing fails here");
            self.progress[op] = Progress::Failed;
            self.covered[op].clear();
            return;
        }
        let is_fua = matches!(setting.ops[op], Op::Fua(_));
        self.progress[op] = if is_fua || !setting.is_volatile {
            Progress::Durable
        } else {
            Progress::Acknowledged
        };
        for op in std::mem::take(&mut self.covered[op]) {
            self.progress[op] = Progress::Durable;
        }
    }

    fn start_data(&mut self, setting: &Setting, shape: &mut Shape, ticket: Ticket, fua: bool) {
        let op = self.op_of(ticket);
        let (kind, first, blocks) = setting.ops[op].request();
        let data = match kind {
            Kind::Write { .. } => content(setting.version(op)),
            // What a device makes of discarded blocks is open.
            _ => content(u32::MAX),
        };
        for block in first..first + u64::from(blocks) {
            let at = self.layout.data(block).unwrap().0;
            self.put(shape, at, &data, fua, Purpose::Data(ticket));
        }
    }

    fn apply(&mut self, shape: &Shape, number: usize) {
        let write = self.remove(number);
        apply(shape, &mut self.medium, &write);
    }

    fn remove(&mut self, number: usize) -> Write {
        self.purposes.remove(number);
        for flushing in self.flushing.iter_mut().flatten() {
            let low = flushing.covered & ((1 << number) - 1);
            flushing.covered = low | (flushing.covered >> (number + 1)) << number;
        }
        self.writes.remove(number)
    }

    fn write_ends(&mut self, setting: &Setting, shape: &mut Shape, number: usize) {
        self.writes[number].is_done = true;
        let place = self.writes[number].place;
        let (purpose, fua) = self.purposes[number];
        if fua || !setting.is_volatile {
            // What is older in the cache cannot be written any more.
            let mut number = number;
            while let Some(older) = self.writes[..number].iter().position(|w| w.place == place) {
                self.apply(shape, older);
                number -= 1;
            }
            self.apply(shape, number);
        }
        self.ended(purpose, true);
    }

    /// A write has ended: tells who waits for it.
    fn ended(&mut self, purpose: Purpose, is_ok: bool) {
        match purpose {
            Purpose::Record => {
                self.told |= if is_ok { self.telling } else { 0 };
                self.store.record_written(is_ok);
            }
            Purpose::Data(ticket) => {
                if !is_ok {
                    self.failed = Some(ticket);
                }
                let rest = self.writes.iter().zip(&self.purposes);
                let mut rest = rest.filter(|(write, _)| !write.is_done);
                if !rest.any(|(_, (purpose, _))| *purpose == Purpose::Data(ticket)) {
                    let is_ok = self.failed.take_if(|failed| *failed == ticket).is_none();
                    self.store.data_done(ticket, is_ok, &mut self.pages);
                }
            }
            Purpose::PiBlock(slot) => self.store.written_back(slot, is_ok),
            Purpose::Growth => {
                let rest = self.writes.iter().zip(&self.purposes);
                let mut rest = rest.filter(|(write, _)| !write.is_done);
                if !rest.any(|(_, (purpose, _))| *purpose == Purpose::Growth) {
                    self.growth_step_ended();
                }
            }
            Purpose::None => {}
        }
    }
}
