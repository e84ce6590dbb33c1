// SPDX-License-Identifier: GPL-2.0

//! An array that is open: the log, its members, the application, and the events that may come next.

mod settle;

use seglog::{
    batch::{
        Kind,
        HEAD_BYTES, //
    },
    epoch::Epoch,
    log::{
        Log,
        Wait, //
    },
    members::{
        column_of,
        Members,
        MEMBERS, //
    },
    record::{
        assign,
        Record,
        Spot,
        CODEC_ZEROES, //
    },
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        note_batch,
        Dump, //
    },
    Checksum, //
};

use crate::{
    assembly::{
        read_record,
        Assembled,
        Fast,
        Words, //
    },
    disk::{
        Disks,
        Shape, //
    },
    history::History,
    setting::{
        payload,
        Op,
        Setting,
        Version,
        Versions,
        BLOCKS, //
    },
    Mistake,
};

const CODEC: u8 = 2;

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

/// What happens next.
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
    /// A flush of this member will fail.
    lost_cache: Members,
    epoch_begun: bool,
    segments: Segments<Vec<Segment>>,
    /// What the superblocks of all members that live say.
    start: Start,
    dump: Option<Dump>,
    reading: Option<Reading>,
    /// What was wrong in a read.
    pub(crate) misread: Option<String>,
}

impl World {
    /// What an assembly has led to.
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
            lost_cache: Members::NONE,
            epoch_begun: false,
            segments: assembled.segments.clone(),
            start: opened.start,
            dump: None,
            reading: None,
            misread: None,
        }
    }

    pub(crate) fn live(&self) -> Members {
        self.log.live()
    }

    pub(crate) fn has_lost_cache(&self) -> bool {
        !self.lost_cache.is_empty()
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// What the application reads now.
    pub(crate) fn acknowledged(&self) -> Option<Versions> {
        let place = self.log.acknowledged().checked_sub(self.history.first)?;
        self.history.states.get(place as usize).copied()
    }

    /// What may happen next.
    pub(crate) fn events(&self, setting: &Setting, depth: usize) -> Vec<Event> {
        let mut events: Vec<Event> = (0..self.ios.len()).map(Event::End).collect();
        if self.next_op < setting.mounts[depth].len() {
            events.push(Event::Issue);
        }
        let live = self.log.live();
        // A second fault at the same time is one too many.
        if live == Members::ALL && self.failures == 0 && self.lost_cache.is_empty() {
            let members = live.iter().filter(|_| setting.failures > 0);
            events.extend(members.map(Event::Fail));
            let members = live.iter().filter(|_| setting.lost_caches);
            events.extend(members.map(Event::LoseCache));
        }
        if setting.reads {
            let one = self
                .reading
                .map_or(0..BLOCKS, |reading| reading.block..reading.block + 1);
            events.extend(one.map(Event::Read));
        }
        events
    }

    /// What an event leads to; `None` if it cannot be yet.
    pub(crate) fn after(
        &self,
        (setting, shape): (&Setting, &Shape),
        depth: usize,
        event: Event,
        mistake: Mistake,
    ) -> Option<Self> {
        let mut world = self.clone();
        match event {
            Event::Issue => {
                let op = setting.mounts[depth][self.next_op];
                let is_write = matches!(op, Op::Write(..) | Op::Zero(_));
                if setting.frees && is_write && self.free(mistake).is_none() {
                    world.make_free(mistake)?;
                } else {
                    world.issue(op, shape, mistake)?;
                }
            }
            Event::End(place) => world.end(place, mistake),
            Event::Fail(member) => {
                world.failures += 1;
                world.fail(member, mistake);
            }
            Event::LoseCache(member) => {
                world.disks[member].lose();
                world.lost_cache = Members::of(member);
            }
            Event::Read(block) if self.reading.is_none() => {
                world.begin_read(block, shape, mistake)?;
            }
            Event::Read(_) => world.end_read(shape, mistake)?,
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
        let usable = reading.usable.and(self.live());
        let record = (reading.block, &reading.spot);
        let found = read_record(shape, &self.disks, record, usable, &Fast(mistake));
        // What was in a cache that is lost may be on no other member yet.
        if found.as_ref() != Ok(&reading.version) && self.lost_cache.is_empty() {
            self.misread = Some(format!("a read gave {found:?} for {reading:?}"));
        }
        Some(())
    }

    fn issue(&mut self, op: Op, shape: &Shape, mistake: Mistake) -> Option<()> {
        match op {
            Op::Write(kind, blocks) => {
                self.write(kind, blocks.map(|b| (b, CODEC)), shape, mistake)?
            }
            Op::Zero(block) => {
                self.write(
                    Kind::Mirror,
                    [(Some(block), CODEC_ZEROES), (None, 0)],
                    shape,
                    mistake,
                )?;
            }
            Op::Dump => self.begin_dump()?,
            Op::Flush => self.flush(mistake)?,
        }
        self.next_op += 1;
        Some(())
    }

    fn begin_dump(&mut self) -> Option<()> {
        let is_idle = self.dump.is_none();
        is_idle.then(|| self.dump = Some(Dump::begin(&self.log, &self.start)))
    }

    fn flush(&mut self, mistake: Mistake) -> Option<()> {
        let members = self.log.flush()?;
        if mistake == Mistake::FlushCoversInFlight {
            // As if all that was issued were acknowledged.
            self.history.forget(self.log.next_sequence() - 1);
        }
        for member in members.iter() {
            let io = self.begin_io(member, Kinds::Flush);
            self.disks[member].begin_flush(io);
        }
        if mistake == Mistake::FlushNotWaitedFor {
            members.iter().for_each(|member| self.log.flushed(member));
        }
        if mistake == Mistake::OneMemberNotFlushed {
            self.ios
                .retain(|io| io.kind != Kinds::Flush || io.member != 2);
            self.log.flushed(2);
        }
        Some(())
    }

    /// Makes segments free that a batch waits for.
    fn make_free(&mut self, mistake: Mistake) -> Option<()> {
        if self.log.durable() < self.log.acknowledged() {
            self.flush(mistake)
        } else {
            self.begin_dump()
        }
    }

    fn free(&self, mistake: Mistake) -> Option<u32> {
        let mut start = self.start;
        if mistake == Mistake::ReusedBeforeDump {
            start.cursor.segment_sequence = u64::MAX;
        }
        let is_flushed = mistake == Mistake::ReusedBeforeFlush;
        let durable = if is_flushed {
            self.log.acknowledged()
        } else {
            self.log.durable()
        };
        self.segments.free((self.log.cursor(), durable), &start)
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

    fn write(
        &mut self,
        kind: Kind,
        blocks: [(Option<usize>, u8); 2],
        shape: &Shape,
        mistake: Mistake,
    ) -> Option<()> {
        let (layout, crc) = (&shape.layout, Fast(mistake));
        let (units, sequence) = (1u16, self.log.next_sequence());
        let segment = self.log.segment(units);
        let used = self
            .log
            .mirror(segment, usize::from(self.next_version % 2 == 0));
        let mut bodies = [const { [0u8; 32] }; MEMBERS];
        let mut state = self.history.newest();
        for ((block, codec), body) in blocks.into_iter().zip(&mut bodies) {
            let Some(block) = block else { continue };
            let version = self.next_version;
            let data = payload(version);
            let data: &[u8] = if codec == CODEC_ZEROES { &[] } else { &data };
            state[block] = if data.is_empty() { 0 } else { version };
            self.next_version += 1;
            let record = Record {
                index: block as u64,
                count: 1,
                codec,
                payload_bytes: data.len() as u16,
            };
            record.write(body, data, (layout, sequence), &crc).unwrap();
        }
        match kind {
            Kind::Mirror => bodies = [bodies[0]; MEMBERS],
            Kind::Striped if mistake == Mistake::ParityLeftOut => {}
            Kind::Striped => {
                let [one, other, parity] = &mut bodies;
                for ((one, other), parity) in one.iter().zip(other).zip(parity) {
                    *parity = *one ^ *other;
                }
            }
        }
        let crcs = bodies.map(|body| crc.crc32c(&body));
        let begun = match self
            .log
            .begin((kind, used, units), crcs, self.free(mistake), &crc)
        {
            Ok(begun) => begun,
            Err(Wait::Window | Wait::Epoch | Wait::Segment) => return None,
            Err(why) => panic!("{why:?}"),
        };
        let head = begun.head;
        let tag = self.superblocks.iter().flatten().next().unwrap().tag;
        let (bytes, _) = head.bytes(tag, &crc);
        if head.place.unit == 0 {
            self.segments.begin(segment, head.segment_sequence);
        }
        let newest = self
            .batches
            .last()
            .map_or(&self.table, |batch| &batch.table);
        let mut table = newest.clone();
        note_batch(&mut table, &head, head.live, layout);
        for column in head.data_columns() {
            let column_bytes = [bytes.as_slice(), &bodies[column]].concat();
            assign(&mut table, (&head, column), &column_bytes, layout, &crc).unwrap();
        }
        for member in head.used.iter() {
            let column = [bytes.as_slice(), &bodies[column_of(segment, member)]].concat();
            assert_eq!(column.len(), HEAD_BYTES + 32);
            let io = self.begin_io(member, Kinds::Column(head.sequence));
            self.disks[member].begin(shape, begun.at, &column, io);
        }
        self.batches.push(Batch {
            sequence: head.sequence,
            segment,
            table,
        });
        self.history.states.push(state);
        assert!(head.used.is_within(head.live) && head.used.count() >= 2);
        Some(())
    }

    fn end(&mut self, place: usize, mistake: Mistake) {
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
                    self.fail(io.member, mistake);
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

    fn fail(&mut self, member: usize, mistake: Mistake) {
        // What is on the way to it may arrive, or not.
        self.ios.retain(|io| io.member != member);
        if mistake == Mistake::FailureIgnored {
            for sequence in 0..self.log.next_sequence() {
                self.log.written(sequence, member);
            }
            self.log.flushed(member);
            return;
        }
        self.log.fail(member);
    }
}
