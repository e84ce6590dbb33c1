// SPDX-License-Identifier: GPL-2.0

//! The state of everything: the store, the device under it, and the application above it.

use std::rc::Rc;

use proto::sidecar::{
    growth::{
        Growth,
        State,
        Step, //
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
        ArrayStore, //
        Memory,
    },
    superblock::Version,
    tuple::Tuple,
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        apply,
        visible,
        Fast,
        Image,
        Shape,
        Write,
        TINY_BYTES, //
    },
    setting::{
        content,
        Op,
        Setting, //
    },
    Mistake, //
};

pub(crate) const REQUESTS: usize = 4;
pub(crate) const SLOTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Progress {
    Waiting,
    Submitted(Ticket),
    Acknowledged,
    Durable,
}

/// What waits for the end of a write of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Record,
    Data(Ticket),
    Home(usize),
    /// A step of the growth.
    Growth,
    /// Ends without anyone who waits.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flushing {
    /// The set of the writes that are durable when it ends: those that had ended when it started.
    covered: usize,
    /// Whether the device does what it shall.
    settles: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pages {
    homes: [Rc<Block>; SLOTS],
    tuples: Vec<Vec<Tuple>>,
}

impl Memory for Pages {
    fn home(&self, slot: usize) -> &Block {
        &self.homes[slot]
    }

    fn home_mut(&mut self, slot: usize) -> &mut Block {
        Rc::make_mut(&mut self.homes[slot])
    }

    fn tuple(&self, ticket: Ticket, offset: u16) -> Tuple {
        self.tuples[ticket][usize::from(offset)]
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    store: ArrayStore<REQUESTS, SLOTS>,
    pages: Pages,
    pub(crate) medium: Image,
    pub(crate) writes: Vec<Write>,
    /// For each of `writes`.
    purposes: Vec<(Purpose, bool)>,
    /// Of the store, and of the growth.
    flushing: [Option<Flushing>; 2],
    growth: Growth,
    /// What requests are carried out with.
    pub(crate) layout: Layout,
    pub(crate) progress: Vec<Progress>,
    /// Operations that were acknowledged when a flush was submitted, by its number.
    covered: Vec<Vec<usize>>,
    is_draining: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Submit,
    WriteEnds(usize),
    FlushEnds(usize),
    Drain,
    Grow,
}

/// Whose flush it is.
const STORE: usize = 0;
const GROWTH: usize = 1;

impl World {
    pub(crate) fn new(setting: &Setting, medium: Image, ring: Ring) -> Self {
        Self {
            store: ArrayStore::in_arrays(*setting.volume.seal(), ring, setting.is_volatile),
            pages: Pages {
                homes: std::array::from_fn(|_| Rc::new([0; BLOCK_BYTES])),
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
            is_draining: false,
        }
    }

    /// What can happen now.
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
        if !self.is_draining {
            events.push(Event::Drain);
        }
        events
    }

    /// Lets an event happen, and the store do what it wants; `None` if it cannot happen.
    pub(crate) fn after(&self, setting: &Setting, shape: &mut Shape, event: Event) -> Option<Self> {
        let mut world = self.clone();
        match event {
            Event::Submit => world.submit(setting)?,
            Event::WriteEnds(number) => world.write_ends(setting, shape, number),
            Event::FlushEnds(whose) => world.flush_ends(shape, whose),
            Event::Grow => {
                let blocks = shape.layout.device_blocks();
                let superblock = setting.volume.superblock();
                world.growth.start(superblock, blocks).unwrap();
            }
            Event::Drain => {
                world.is_draining = true;
                world.store.drain(true);
            }
        }
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
        let layout = self.layout;
        match action {
            Action::ReadHome { slot, group } => {
                let place = shape.place(layout.home(group).unwrap());
                let parts = visible(shape, &self.medium, &self.writes, place);
                shape.join(place, &parts, self.pages.home_mut(slot));
                self.store.home_read(slot, true);
            }
            Action::WriteRecord(mut head) => {
                if setting.mistake == Mistake::TailTooNew {
                    head.tail = head.sequence;
                }
                // A buffer that is used again and again.
                let mut buffer = [0xa5; BLOCK_BYTES];
                let crc = setting.volume.checksum();
                let mut record = self.store.fill(head, &self.pages, &mut buffer, crc);
                let is_whole = setting.volume.superblock().version == Version::One;
                assert_eq!(record.len() == BLOCK_BYTES, is_whole);
                if setting.mistake == Mistake::LastUnitLeftOut {
                    record = &record[..record.len() - TINY_BYTES];
                }
                let at = layout.record(head.sequence);
                let fua = setting.mistake != Mistake::RecordWithoutFua;
                if setting.mistake == Mistake::DataBeforeRecord {
                    self.put(shape, at, record, fua, Purpose::None);
                    self.store.record_written(true);
                } else {
                    self.put(shape, at, record, fua, Purpose::Record);
                }
                if setting.mistake == Mistake::HomeBeforeRecord {
                    self.set_tuples(setting);
                }
            }
            Action::Data(ticket) => self.start_data(setting, shape, ticket),
            Action::ReadBack(_) => panic!("no write fails here"),
            Action::WriteHome { slot, group, part } => {
                let home = *self.pages.home(slot);
                let at = layout.home(group).unwrap();
                let mut bytes = part.bytes();
                let is_whole = setting.volume.superblock().version == Version::One;
                assert_eq!(bytes.len() == BLOCK_BYTES, is_whole);
                if setting.mistake == Mistake::LastSectorLeftOut {
                    bytes.end = (bytes.start + 512).min(bytes.end);
                }
                let start = bytes.start;
                self.put_from(shape, (at, start), &home[bytes], false, Purpose::Home(slot));
            }
            Action::Flush => {
                let settles = setting.mistake != Mistake::FlushLeftOut;
                self.flush(setting, shape, STORE, settles);
            }
            Action::Answer { ticket, is_ok } => {
                assert!(is_ok, "nothing fails here");
                let op = self.op_of(ticket);
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
        }
    }

    /// The mistake: all requests in the record have their tuples in memory now.
    fn set_tuples(&mut self, setting: &Setting) {
        for (number, progress) in self.progress.clone().into_iter().enumerate() {
            let Progress::Submitted(ticket) = progress else {
                continue;
            };
            let (kind, first, blocks) = setting.ops[number].request();
            if !matches!(kind, Kind::Write { .. }) {
                continue;
            }
            for offset in 0..blocks {
                let (_, index) = proto::sidecar::group::place(first + u64::from(offset));
                let tuple = self.pages.tuple(ticket, offset);
                proto::sidecar::group::set_tuple(self.pages.home_mut(0), index, &tuple);
            }
        }
    }

    fn start_data(&mut self, setting: &Setting, shape: &mut Shape, ticket: Ticket) {
        let op = self.op_of(ticket);
        let (kind, first, blocks) = setting.ops[op].request();
        let data = match kind {
            Kind::Write { .. } => content(setting.version(op)),
            // What a device makes of discarded blocks is open.
            _ => content(u32::MAX),
        };
        let fua = kind == Kind::Write { fua: true };
        for block in first..first + u64::from(blocks) {
            let at = self.layout.data(block).unwrap().0;
            self.put(shape, at, &data, fua, Purpose::Data(ticket));
        }
    }

    fn flush(&mut self, setting: &Setting, shape: &Shape, whose: usize, settles: bool) {
        let covered = self.writes.iter().enumerate();
        let covered = covered.filter(|(_, write)| write.is_done);
        let covered = covered.fold(0usize, |set, (number, _)| set | 1 << number);
        self.flushing[whose] = Some(Flushing { covered, settles });
        if !setting.is_volatile {
            self.flush_ends(shape, whose);
        }
    }

    /// Takes a step of the growth, as the server does.
    fn grow(&mut self, setting: &Setting, shape: &mut Shape, step: Step) {
        let (seal, mistake) = (*setting.volume.seal(), setting.mistake);
        let Some(place) = self.growth.place(step) else {
            return self.flush(
                setting,
                shape,
                GROWTH,
                mistake != Mistake::GrowthFlushLeftOut,
            );
        };
        let mut block = [0; BLOCK_BYTES];
        for (index, at) in (0..step.blocks()).zip(place..) {
            self.growth
                .fill(step, index, &mut block, &seal, &Fast::RIGHT);
            let fua = step.is_fua() && mistake != Mistake::SuperblockWithoutFua;
            self.put(shape, at, &block, fua, Purpose::Growth);
        }
        if step == Step::Superblock && mistake == Mistake::SpaceBeforeSuperblock {
            self.layout = *self.growth.layout().unwrap();
        }
    }

    fn growth_step_ended(&mut self) {
        if let Some(superblock) = self.growth.ended(true) {
            self.layout = superblock.layout;
        }
    }

    fn apply(&mut self, shape: &Shape, number: usize) {
        let write = self.writes.remove(number);
        self.purposes.remove(number);
        apply(shape, &mut self.medium, &write);
        for flushing in self.flushing.iter_mut().flatten() {
            let low = flushing.covered & ((1 << number) - 1);
            flushing.covered = low | (flushing.covered >> (number + 1)) << number;
        }
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
        match purpose {
            Purpose::Record => self.store.record_written(true),
            Purpose::Data(ticket) => {
                let rest = self.writes.iter().zip(&self.purposes);
                let mut rest = rest.filter(|(write, _)| !write.is_done);
                if !rest.any(|(_, (purpose, _))| *purpose == Purpose::Data(ticket)) {
                    self.store.data_done(ticket, true, &mut self.pages);
                }
            }
            Purpose::Home(slot) => self.store.home_written(slot, true),
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

    fn flush_ends(&mut self, shape: &Shape, whose: usize) {
        let Some(flushing) = self.flushing[whose].take() else {
            return;
        };
        if flushing.settles {
            let covered = (0..self.writes.len()).rev();
            let covered: Vec<_> = covered.filter(|n| flushing.covered >> n & 1 != 0).collect();
            // Oldest first, so that the newest one stays.
            for (removed, number) in covered.into_iter().rev().enumerate() {
                self.apply(shape, number - removed);
            }
        }
        match whose {
            STORE => self.store.flushed(true),
            _ => self.growth_step_ended(),
        }
    }
}
