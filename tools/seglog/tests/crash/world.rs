// SPDX-License-Identifier: GPL-2.0

//! An array that is open: the log, its members, the application, and the events that may come next.

mod collecting;
mod returning;
mod settle;
mod write;

use seglog::{
    epoch::Epoch,
    log::Log,
    members::{
        Members,
        MEMBERS, //
    },
    record::Spot,
    resync::Resync,
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        lose,
        Dump, //
    },
};

use self::collecting::Collecting;
use crate::{
    assembly::{
        read_record,
        Assembled,
        Fast,
        Words, //
    },
    disk::{
        Disk,
        Disks,
        Shape, //
    },
    history::History,
    setting::{
        Setting,
        Version,
        Versions,
        BLOCKS, //
    },
    Mistake,
};

/// An IO in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kinds {
    /// A column of a batch.
    Column(u64),
    Flush,
    /// A superblock.
    Superblock,
    /// A page of a dump.
    Page,
    /// The flush of a dump.
    DumpFlush,
}

impl Kinds {
    fn is_of_dump(self) -> bool {
        matches!(self, Self::Page | Self::DumpFlush)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Io {
    number: u32,
    member: usize,
    kind: Kinds,
}

/// A batch in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Batch {
    sequence: u64,
    segment: u32,
    /// The table after it.
    table: Words,
}

/// A read in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reading {
    block: usize,
    spot: Spot,
    usable: Members,
    version: Version,
}

/// Events of which one happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The application goes on.
    Issue,
    /// The IO at this place ends.
    End(usize),
    /// A member fails.
    Fail(usize),
    /// A member loses its cache, and goes on.
    LoseCache(usize),
    /// A read of a block begins, or the one in flight ends.
    Read(usize),
    /// Collecting goes on.
    Collect,
    /// A member that has failed or was absent returns.
    Return(usize),
    /// A new device takes its place.
    Replace(usize),
}

impl Event {
    /// Whether something fails.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Self::Fail(_) | Self::LoseCache(_))
    }
}

/// An array that is open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) disks: Disks,
    pub(crate) history: History,
    pub(crate) table: Words,
    log: Log,
    superblocks: [Option<Superblock>; MEMBERS],
    epoch: Epoch,
    ios: Vec<Io>,
    /// Batches in flight, with what they assign.
    batches: Vec<Batch>,
    next_io: u32,
    next_op: usize,
    next_version: Version,
    failures: u8,
    returns: u8,
    moves: u8,
    /// A flush of this member will fail.
    lost_cache: Members,
    epoch_begun: bool,
    segments: Segments<Vec<Segment>>,
    /// Start in the superblocks of all members that live.
    start: Start,
    dump: Option<Dump>,
    reading: Option<Reading>,
    collecting: Option<Collecting>,
    /// A member is told, with the others, that it is written from now on.
    telling: Option<usize>,
    resync: Option<Resync>,
    /// The last device that was replaced, and whose place it had.
    shelf: Option<(usize, Disk)>,
    /// Mistake that a read has shown.
    pub(crate) misread: Option<String>,
}

impl World {
    /// Returns what an assembly has led to.
    pub(crate) fn new(assembled: &Assembled, depth: usize) -> Self {
        let opened = &assembled.opened;
        let first = opened.log.durable();
        Self {
            disks: assembled.disks.clone(),
            history: History::new(first, assembled.versions),
            table: assembled.table.clone(),
            log: opened.log.clone(),
            superblocks: opened.superblocks,
            epoch: opened.epoch,
            ios: Vec::new(),
            batches: Vec::new(),
            next_io: 2,
            next_op: 0,
            next_version: (depth as Version + 1) * 64,
            failures: 0,
            returns: 0,
            moves: 0,
            lost_cache: Members::NONE,
            epoch_begun: false,
            segments: assembled.segments.clone(),
            start: opened.start,
            dump: None,
            reading: None,
            collecting: None,
            telling: None,
            resync: None,
            shelf: None,
            misread: None,
        }
    }

    pub(crate) fn live(&self) -> Members {
        self.log.live()
    }

    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The start that all members that live were told.
    pub(crate) fn start(&self) -> &Start {
        &self.start
    }

    /// The start of the dump that is written.
    pub(crate) fn dumping(&self) -> Option<Start> {
        self.dump.as_ref().map(Dump::start)
    }

    pub(crate) fn has_lost_cache(&self) -> bool {
        !self.lost_cache.is_empty()
    }

    /// Whether records that were read wait to be moved.
    pub(crate) fn is_moving(&self) -> bool {
        self.collecting.as_ref().is_some_and(Collecting::is_loaded)
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Returns what the application reads now.
    pub(crate) fn acknowledged(&self) -> Option<Versions> {
        let place = self.log.acknowledged().checked_sub(self.history.first)?;
        self.history.states.get(place as usize).copied()
    }

    /// Returns what may happen next.
    pub(crate) fn events(&self, setting: &Setting, depth: usize) -> Vec<Event> {
        let ends = if setting.in_order {
            self.ios.len().min(1)
        } else {
            self.ios.len()
        };
        let mut events: Vec<Event> = (0..ends).map(Event::End).collect();
        let goes_on = !setting.in_order || self.ios.is_empty();
        if goes_on && self.next_op < setting.mounts[depth].len() {
            events.push(Event::Issue);
        }
        self.add_faults(setting, &mut events);
        if goes_on && self.moves < setting.moves {
            events.push(Event::Collect);
        }
        if setting.reads {
            let one = self
                .reading
                .map_or(0..BLOCKS, |reading| reading.block..reading.block + 1);
            events.extend(one.map(Event::Read));
        }
        events
    }

    fn add_faults(&self, setting: &Setting, events: &mut Vec<Event>) {
        let (live, written) = (self.log.live(), self.log.written_members());
        // A second fault at the same time is one too many.
        if live == Members::ALL && self.lost_cache.is_empty() {
            let members = live.iter().filter(|_| self.failures < setting.failures);
            events.extend(members.map(Event::Fail));
            let has_lost = self.failures > 0;
            let members = live.iter().filter(|_| setting.lost_caches && !has_lost);
            events.extend(members.map(Event::LoseCache));
        }
        let is_idle = !setting.in_order || self.ios.is_empty();
        if is_idle && self.returns < setting.returns && live.count() == 2 && written == live {
            for member in Members::ALL.minus(live).iter() {
                events.push(Event::Return(member));
                events.extend(setting.replaces.then_some(Event::Replace(member)));
            }
        }
        // One that returns may fail again.
        if self.failures < setting.failures {
            let members = written.minus(live);
            events.extend(members.iter().map(Event::Fail));
        }
    }

    /// Returns what an event leads to; `None` if it cannot be yet.
    pub(crate) fn after(
        &self,
        (setting, shape): (&Setting, &Shape),
        depth: usize,
        event: Event,
        mistake: Mistake,
    ) -> Option<Self> {
        let mut world = self.clone();
        match event {
            Event::Issue => world.go_on((setting, shape), depth, mistake)?,
            Event::End(place) => world.end(place, shape, mistake),
            Event::Fail(member) => {
                world.failures += 1;
                world.fail(member, shape, mistake);
            }
            Event::LoseCache(member) => {
                world.disks[member].lose();
                world.lost_cache = Members::of(member);
                world.failures += 1;
            }
            Event::Read(block) if self.reading.is_none() => {
                world.begin_read(block, shape, mistake)?;
            }
            Event::Read(_) => world.end_read(shape, mistake)?,
            Event::Collect => {
                world.moves = world.moves.saturating_add(1);
                world.collect(shape, mistake)?;
            }
            Event::Return(member) => world.take_back(member, false, shape, mistake)?,
            Event::Replace(member) => world.take_back(member, true, shape, mistake)?,
        }
        world.settle(shape, mistake);
        Some(world)
    }

    fn begin_read(&mut self, block: usize, shape: &Shape, mistake: Mistake) -> Option<()> {
        let spot = self.table.entry(block).spot(&shape.layout).unwrap()?;
        let version = self.acknowledged()?[block];
        if mistake != Mistake::ReusedWhileRead {
            self.segments.begin_read(spot.segment);
        }
        let usable = self.table.members(spot.segment);
        self.reading = Some(Reading {
            block,
            spot,
            usable,
            version,
        });
        Some(())
    }

    fn end_read(&mut self, shape: &Shape, mistake: Mistake) -> Option<()> {
        let reading = self.reading.take()?;
        if mistake != Mistake::ReusedWhileRead {
            self.segments.end_read(reading.spot.segment);
        }
        // It may have failed, and returned, meanwhile.
        let usable = self.table.members(reading.spot.segment);
        let usable = usable.and(reading.usable).and(self.live());
        let is_elsewhere =
            self.table.entry(reading.block).spot(&shape.layout) != Ok(Some(reading.spot));
        if is_elsewhere && usable != reading.usable {
            // Its user looks the entry up again.
            return Some(());
        }
        let record = (reading.block, &reading.spot);
        let found = read_record(shape, &self.disks, record, usable, &Fast(mistake));
        // What was in a cache that is lost may be on no other member yet.
        if found.as_ref() != Ok(&reading.version) && self.lost_cache.is_empty() {
            self.misread = Some(format!("a read gave {found:?} for {reading:?}"));
        }
        Some(())
    }

    fn begin_io(&mut self, member: usize, kind: Kinds) -> u32 {
        let number = self.next_io;
        self.next_io += 1;
        self.ios.push(Io {
            number,
            member,
            kind,
        });
        number
    }

    fn end(&mut self, place: usize, shape: &Shape, mistake: Mistake) {
        let io = self.ios.remove(place);
        match io.kind {
            Kinds::Column(sequence) => {
                self.disks[io.member].end(io.number, false);
                if mistake == Mistake::AcknowledgedByOne {
                    (0..MEMBERS).for_each(|member| self.log.written(sequence, member));
                }
                self.log.written(sequence, io.member);
            }
            Kinds::Page => self.disks[io.member].end(io.number, false),
            Kinds::Flush | Kinds::DumpFlush => {
                let has_failed = self.lost_cache.contains(io.member);
                self.disks[io.member].end_flush(io.number);
                if has_failed && mistake != Mistake::LostCacheIgnored {
                    self.fail(io.member, shape, mistake);
                } else if io.kind == Kinds::Flush {
                    self.log.flushed(io.member);
                }
            }
            Kinds::Superblock => {
                let fua = mistake != Mistake::SuperblockWithoutFua;
                self.disks[io.member].end(io.number, fua);
            }
        }
    }

    fn fail(&mut self, member: usize, shape: &Shape, mistake: Mistake) {
        // What is on the way to it may arrive, or not.
        self.ios.retain(|io| io.member != member);
        let failed = Members::of(member);
        self.lost_cache = self.lost_cache.minus(failed);
        if mistake == Mistake::FailureIgnored {
            for sequence in 0..self.log.next_sequence() {
                self.log.written(sequence, member);
            }
            self.log.flushed(member);
            return;
        }
        self.log.fail(member);
        if mistake != Mistake::CacheKept {
            self.lose(failed, self.log.may_be_lost_from()..u64::MAX, shape);
        }
        if let Some(dump) = &mut self.dump {
            if mistake != Mistake::DumpNotBegunAgain {
                dump.member_failed(&shape.layout);
            }
        }
        self.telling = self.telling.filter(|telling| *telling != member);
    }

    /// Members do not have the columns of some uses of segments.
    fn lose(&mut self, members: Members, uses: std::ops::Range<u64>, shape: &Shape) {
        lose(&mut self.table, members, uses.clone(), &shape.layout);
        for batch in &mut self.batches {
            lose(&mut batch.table, members, uses.clone(), &shape.layout);
        }
        self.segments.lose(members, uses);
    }
}
