// SPDX-License-Identifier: GPL-2.0

//! A store that is a log of `seglog`, on one device.

use std::collections::BTreeMap;

use rioc::proto::{
    body::{
        self,
        Body,
        Mark,
        CHANGES_MAX,
        TAGGED_BYTES, //
    },
    entry::{
        self,
        Entry, //
    },
    index::{
        Changes,
        Source, //
    },
    slot::{
        Slot,
        Stored, //
    },
    span::BLOCK_BYTES, //
};
use seglog::{
    batch::{
        Head,
        Kind,
        HEAD_BYTES, //
    },
    collect::Purpose,
    cursor::Cursor,
    devices::Devices,
    layout::Layout,
    log::{
        Log,
        WINDOW, //
    },
    members::MEMBERS,
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
        write_page,
        Dump,
        Step, //
    },
    ArrayTag, //
};

use crate::{
    assembly::{
        assemble,
        layout,
        segment_of,
        Assembled,
        Words,
        OWN,
        PAGE_BYTES,
        SEGMENT_UNITS, //
    },
    crash::Logged,
    disk::Disk,
    log::Crc,
    random::Random,
    store::{
        Block,
        Objects,
        Storage, //
    },
};

/// The blocks that an operation of these lives may need.
const BLOCKS: usize = 6;
/// What the user of the log does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A dump counts before the batches are acknowledged of which its pages know.
    DumpBeforeBatches,
    /// The pages of a dump are not flushed before the superblock that names it.
    DumpNotFlushed,
}

pub(crate) struct OnLog {
    disk: Disk,
    layout: Layout,
    tag: ArrayTag,
    log: Log,
    segments: Segments<Vec<Segment>>,
    words: Words,
    superblock: Superblock,
    start: Start,
    dump: Option<(Dump, u64)>,
    body: Option<Body<Vec<u8>, Vec<u32>>>,
    /// The place of the batch that is filled.
    at: Cursor,
    live: BTreeMap<u64, usize>,
    marks: BTreeMap<u64, Mark>,
    changed: Vec<u32>,
    /// The objects behind each batch, and where these are that are in flight.
    history: BTreeMap<u64, Objects>,
    heads: BTreeMap<u64, Head>,
    random: Random,
    fault: Fault,
    purpose: Purpose,
    batches: u64,
}

impl OnLog {
    pub(crate) fn new(slots: usize, seed: u64, fault: Fault) -> Self {
        let mut random = Random::new(seed);
        let layout = layout(slots);
        let mut disk = Disk::new(layout.end_bytes() as usize);
        let tag = ArrayTag(random.next());
        let first = Superblock::new(([3; 16], tag), 0, layout, random.next() | 1);
        let bytes = first.bytes(&Crc);
        disk.write(0, Layout::slot(0), &bytes, true).unwrap();
        let assembled = assemble(&mut disk, slots, &mut random).unwrap();
        Self::open(disk, assembled, (random, fault))
    }

    fn open(
        disk: Disk,
        (opened, segments, words, end): Assembled,
        (random, fault): (Random, Fault),
    ) -> Self {
        let superblock = opened.superblocks[0].unwrap();
        let at = *opened.log.cursor();
        Self {
            disk,
            layout: superblock.layout,
            tag: superblock.tag,
            log: opened.log,
            segments,
            words,
            superblock,
            start: opened.start,
            dump: None,
            body: None,
            at,
            live: BTreeMap::new(),
            marks: BTreeMap::new(),
            changed: Vec::new(),
            history: BTreeMap::from([(end, Objects::new())]),
            heads: BTreeMap::new(),
            random,
            fault,
            purpose: Purpose::Collect,
            batches: 0,
        }
    }

    /// Whether the log is refused when all is durable and the newer slot of its superblock is
    /// damaged. If it is not, nothing is lost.
    pub(crate) fn tells_of_a_damaged_slot(&mut self) -> bool {
        Logged::flush(self);
        let mut disk = self.disk.clone();
        disk.flush_cache();
        let at = Layout::slot(self.superblock.slot());
        disk.write(0, at, &[0x77; 512], true).unwrap();
        let slots = self.words.entries.len();
        let assembled = assemble(&mut disk, slots, &mut Random::new(1));
        let Ok((_, _, _, end)) = assembled else {
            return true;
        };
        let mut last = self.history.range(..=self.log.durable());
        assert!(end >= *last.next_back().unwrap().0, "something is lost");
        false
    }

    fn free(&self, purpose: Purpose) -> Option<u32> {
        let end = (self.log.cursor(), self.log.durable());
        self.segments
            .free(purpose, end, (&self.start, &self.layout))
    }

    /// Begins the body of the next batch, if a segment is free that can follow it.
    fn begin_body(&mut self) {
        if self.free(self.purpose).is_none() {
            return;
        }
        let needed = HEAD_BYTES + BLOCKS * TAGGED_BYTES + CHANGES_MAX * 36;
        let unit = self.layout.unit_bytes();
        let mut left = self.log.units_left();
        self.at = *self.log.cursor();
        if (left as usize) * unit < needed {
            (self.at.segment, self.at.unit) = (self.at.next, 0);
            left = SEGMENT_UNITS;
        }
        let units = left.min(self.layout.column_units_max()).min(90);
        let place = self.layout.at(self.at.place()).unwrap() + HEAD_BYTES as u64;
        let memory = vec![0; units as usize * unit - HEAD_BYTES];
        let origin = (place, self.log.next_sequence());
        self.body = Some(Body::new(memory, origin, vec![0; 400]));
    }

    /// An IO ends, if one is in flight.
    fn end_io(&mut self) {
        if let Some(batch) = self.disk.end_one(&mut self.random) {
            self.log.written(batch, 0);
        }
        while let Some(acknowledged) = self.log.acknowledge() {
            let head = self.heads.remove(&acknowledged.sequence).unwrap();
            note_batch(&mut self.words, &head, acknowledged.members, &self.layout);
            self.segments.acknowledge(head.place.segment, head.sequence);
        }
    }

    /// What is acknowledged becomes durable.
    fn flush_log(&mut self) {
        if self.log.flush().is_some() {
            self.disk.flush_cache();
            self.log.flushed(0);
            self.log.end_flush();
        }
    }

    fn settle_pages(&mut self) {
        while self.disk.has_others() {
            self.end_io();
        }
    }
}

impl Logged for OnLog {
    fn prepare(&mut self, moves: bool, objects: &Objects, entry: &dyn Fn(u32) -> Entry) -> bool {
        self.purpose = if moves {
            Purpose::Collect
        } else {
            Purpose::Write
        };
        let has_room = |body: &Body<Vec<u8>, Vec<u32>>| body.has_room(BLOCKS, CHANGES_MAX);
        if !self.body.as_ref().is_some_and(has_room) {
            self.close(objects, entry);
        }
        if self.body.is_none() {
            self.begin_body();
        }
        self.body.is_some()
    }

    fn is_low(&self) -> bool {
        let end = (self.log.cursor(), self.log.durable());
        let most = Purpose::Write.leaves(&self.layout) + 2;
        let is_there = self
            .segments
            .has_free(most, end, (&self.start, &self.layout));
        !is_there || self.body.is_none()
    }

    fn victim(&self) -> Option<usize> {
        let before = self.log.collectable_before();
        let victim = self.segments.victim((OWN, u64::MAX), before);
        let victim = victim.filter(|_| self.free(Purpose::Collect).is_some());
        victim.map(|segment| segment as usize)
    }

    fn is_in(&self, stored: &Stored, segment: usize) -> bool {
        segment_of(&self.layout, stored.place) as usize == segment
    }

    fn flush(&mut self) {
        while !self.heads.is_empty() {
            self.end_io();
        }
        self.flush_log();
    }

    fn crash(&mut self) -> (Vec<Slot>, Objects) {
        // The first batch of an assembly has no operations, and may be written again.
        let mut durable = self.history.range(..=self.log.durable());
        let durable = *durable.next_back().unwrap().0;
        let slots = self.words.entries.len();
        self.disk.lose_power(&mut self.random);
        let mut disk = self.disk.clone();
        let mut random = Random::new(self.random.next());
        let assembled = assemble(&mut disk, slots, &mut random).unwrap();
        let end = assembled.3;
        assert!(end >= durable, "{end} is before {durable}");
        let objects = self.history.range(..=end).next_back().unwrap().1.clone();
        let entries = assembled.2.entries.iter();
        let slots = entries.map(|e| entry::slot(e).unwrap()).collect::<Vec<_>>();
        let batches = self.batches;
        *self = Self::open(disk, assembled, (random, self.fault));
        self.batches = batches;
        self.history.insert(end, objects.clone());
        for slot in &slots {
            if let Slot::Extent(extent) = slot {
                self.live.insert(extent.stored.place, extent.blocks.into());
            }
        }
        (slots, objects)
    }

    fn close(&mut self, objects: &Objects, entry: &dyn Fn(u32) -> Entry) {
        let Some(body) = self.body.take_if(|body| !body.is_empty()) else {
            return;
        };
        let (bytes, used) = body.finish(entry).unwrap();
        let unit = self.layout.unit_bytes();
        let mut units = (HEAD_BYTES + used).div_ceil(unit) as u32;
        if self.at.unit == 0 {
            // The segment before has no room for it.
            units = units.max(self.log.units_left() + 1);
        }
        let mut column = vec![0; HEAD_BYTES];
        column.extend(&bytes[..used]);
        column.resize(units as usize * unit, 0);
        let crc = crc32c::crc32c(&column[HEAD_BYTES..]);
        while self.heads.len() >= WINDOW {
            self.end_io();
        }
        let free = self.free(Purpose::Collect);
        let batch = (Kind::Mirror, OWN, units as u16);
        let begun = self.log.begin(batch, [crc; MEMBERS], free, &Crc).unwrap();
        let head = begun.head;
        assert_eq!(
            (head.place.segment, head.place.unit),
            (self.at.segment, self.at.unit)
        );
        let (bytes, _) = head.bytes(self.tag, &Crc);
        column[..HEAD_BYTES].copy_from_slice(&bytes);
        if head.place.unit == 0 {
            let of_use = (head.segment_sequence, head.sequence);
            self.segments.begin(head.place.segment, of_use, OWN);
        }
        self.disk.begin(head.sequence, begun.at, column);
        self.heads.insert(head.sequence, head);
        self.history.insert(head.sequence, objects.clone());
        self.marks.clear();
        self.batches += 1;
        self.begin_body();
    }

    fn step_dump(&mut self, entry: &dyn Fn(u32) -> Entry) -> bool {
        let (mut dump, mut knows) = match self.dump.take() {
            Some(dump) => dump,
            None => (Dump::begin(&self.log, &self.start), 0),
        };
        let is_early = self.log.acknowledged() < knows && self.fault != Fault::DumpBeforeBatches;
        let mut next = dump.clone();
        match next.step(&self.layout) {
            Step::Page(page) => {
                for (slot, to) in (0..).zip(&mut self.words.entries) {
                    *to = entry(slot);
                }
                let mut bytes = vec![0; PAGE_BYTES as usize];
                let number = (page, dump.generation());
                write_page(
                    &mut bytes,
                    number,
                    &self.words,
                    (&self.layout, self.tag),
                    &Crc,
                );
                let at = self.layout.page(dump.area(), page);
                self.disk.begin(0, at, bytes);
                let is_filled = self.body.as_ref().is_some_and(|body| !body.is_empty());
                knows = self.log.next_sequence() - u64::from(!is_filled);
                // All IO of a step has ended before the next one.
                self.settle_pages();
            }
            Step::Flush if is_early => next = dump.clone(),
            Step::Flush if self.fault == Fault::DumpNotFlushed => (),
            Step::Flush => self.disk.flush_cache(),
            Step::Superblocks(start) => {
                self.superblock = self.superblock.with_start(start);
                let at = Layout::slot(self.superblock.slot());
                let bytes = self.superblock.bytes(&Crc);
                self.disk.write(0, at, &bytes, true).unwrap();
            }
            Step::Done => {
                self.start = dump.start();
                return true;
            }
        }
        dump = next;
        self.dump = Some((dump, knows));
        false
    }

    fn written(&self) -> u64 {
        self.batches
    }
}

impl Storage for OnLog {
    fn put(&mut self, bytes: &[u8]) -> Stored {
        let blocks = bytes.chunks(BLOCK_BYTES as usize);
        let count = blocks.len();
        let blocks = blocks.map(|block| (crc32c::crc32c(block), block));
        let body = self.body.as_mut().expect("prepared");
        let mark = body.mark();
        let stored = body.put(blocks, &Crc).expect("room");
        self.marks.insert(stored.place, mark);
        self.live.insert(stored.place, count);
        let segment = segment_of(&self.layout, stored.place);
        self.segments.add(segment, (count * TAGGED_BYTES) as u64);
        stored
    }

    fn take_back(&mut self, stored: Stored) {
        let count = self.live.remove(&stored.place).expect("put");
        let segment = segment_of(&self.layout, stored.place);
        let bytes = (count * TAGGED_BYTES) as u64;
        self.segments
            .remove(segment, bytes, self.log.next_sequence());
        if let Some(body) = &mut self.body {
            body.go_back(self.marks[&stored.place]);
        }
    }

    fn get(&self, source: &Source, skipped: u32) -> Block {
        let place = body::place_of(&source.stored, source.first + skipped as u8);
        let mut bytes = vec![0; TAGGED_BYTES];
        match self.body.as_ref().and_then(|body| body.at(place)) {
            Some(open) => bytes.copy_from_slice(open),
            None => self.disk.look(place, &mut bytes),
        }
        let (_, block) = body::block(&bytes, &source.stored, &Crc).expect("the block");
        block.try_into().unwrap()
    }

    fn places(&self) -> Vec<(u64, usize)> {
        let each = self.live.iter();
        each.map(|(place, blocks)| (*place, *blocks)).collect()
    }

    fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }

    fn settle(&mut self, objects: &Objects, entry: &dyn Fn(u32) -> Entry) {
        match self.random.below(12) {
            0..4 => self.close(objects, entry),
            4 => self.flush_log(),
            5..7 => self.end_io(),
            7..11 => {
                self.step_dump(entry);
            }
            _ => (),
        }
        let moves = self.purpose == Purpose::Collect;
        // An operation that has begun may use what operations leave.
        if !self.prepare(moves, objects, entry) {
            self.prepare(true, objects, entry);
        }
    }
}

impl Changes for OnLog {
    fn changed(&mut self, slot: u32) {
        self.changed.push(slot);
        self.body.as_mut().expect("prepared").change(slot);
    }

    fn freed(&mut self, stored: Stored, blocks: u8) {
        let freed = self.live.remove(&stored.place).expect("freed twice");
        assert_eq!(freed, usize::from(blocks));
        let segment = segment_of(&self.layout, stored.place);
        let bytes = (freed * TAGGED_BYTES) as u64;
        let batch = self.log.next_sequence();
        self.segments.remove(segment, bytes, batch);
    }
}
