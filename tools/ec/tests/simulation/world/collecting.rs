// SPDX-License-Identifier: GPL-2.0

//! Collecting, with other events between its steps.

use std::{
    cell::Cell,
    collections::BTreeSet,
    ops::Range, //
};

use rnbd_ec::proto::{
    array::{
        Need,
        Repair, //
    },
    codec::Codec,
    collector::{
        is_gain,
        run_of,
        runs,
        Loaded,
        Stage,
        Staged,
        Victim, //
    },
    packing::record_bytes_max,
};
use seglog::{
    collect::Purpose,
    devices::Devices,
    layout::{
        Layout,
        COLUMN_BYTES_MAX, //
    },
    log::{
        Wait,
        WINDOW, //
    },
    members::MEMBERS,
    record::Record,
    ArrayTag, //
};

use super::{
    assembling::OneByOne,
    content,
    looks::LOOKS,
    Crc,
    Life, //
};
use crate::member::SECTOR;

/// Returns the records that are written instead of one of which some blocks are not live.
fn rewritten(record: &Record, payload: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let codec = Codec::from_number(record.codec).unwrap();
    let blocks = content::decode(codec, payload, record.count);
    let make = |run: Range<u32>| {
        let live = &blocks[run.start as usize..run.end as usize];
        let payload = content::encode(Some(codec), live, 8);
        let of_payload = (record.codec, payload.len() as u16);
        (run_of(record, &run, of_payload), payload)
    };
    let parts: Vec<_> = runs(record).map(make).collect();
    let bytes = parts.iter().map(|(record, _)| record.bytes()).sum();
    if record.skipped != 0 && is_gain(record, bytes) {
        parts
    } else {
        vec![(*record, payload.to_vec())]
    }
}

/// A segment that is collected.
pub(crate) struct Collecting {
    pub(super) victim: Victim,
    payloads: Vec<u8>,
    records: Vec<Option<Staged>>,
    loaded: Loaded,
    /// The first record that was not moved.
    next: usize,
}

impl Collecting {
    fn new(victim: Victim) -> Self {
        Self {
            victim,
            payloads: vec![0; 2 * COLUMN_BYTES_MAX],
            records: vec![None; 8192],
            loaded: Loaded::default(),
            next: 0,
        }
    }

    fn load_of(
        &mut self,
        (mut devices, is_stopping): (impl Devices, impl Fn() -> bool),
        (layout, tag): (Layout, ArrayTag),
    ) -> Loaded {
        let (mut column, mut other) = (vec![0; COLUMN_BYTES_MAX], vec![0; COLUMN_BYTES_MAX]);
        let mut stage = Stage {
            column: &mut column,
            other: &mut other,
            payloads: &mut self.payloads,
            records: &mut self.records,
        };
        let devices = (&mut devices, is_stopping, 50);
        self.victim.load(devices, &mut stage, (&layout, tag), &Crc)
    }
}

/// The members, whose reads are counted.
struct Counted<'a>(OneByOne<'a>, &'a Cell<u32>);

impl Devices for Counted<'_> {
    type Error = &'static str;

    fn bytes(&self, member: usize) -> u64 {
        self.0.bytes(member)
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        self.1.set(self.1.get() + 1);
        self.0.read(member, at, to)
    }

    fn write(&mut self, _: usize, _: u64, _: &[u8], _: bool) -> Result<(), &'static str> {
        Err("a collector writes nothing by itself")
    }

    fn flush(&mut self, _: usize) -> Result<(), &'static str> {
        Err("a collector flushes nothing by itself")
    }
}

/// The members, of which one is late: it gives an error to who waits briefly. With the reads of it
/// that were waited for so, and as long as any IO.
struct Late<'a>(OneByOne<'a>, usize, &'a Cell<(u32, u32)>);

impl Devices for Late<'_> {
    type Error = &'static str;

    fn bytes(&self, member: usize) -> u64 {
        self.0.bytes(member)
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        let (soon, long) = self.2.get();
        if member == self.1 {
            self.2.set((soon, long + 1));
        }
        self.0.read(member, at, to)
    }

    fn read_soon(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        if member != self.1 {
            return self.0.read(member, at, to);
        }
        let (soon, long) = self.2.get();
        self.2.set((soon + 1, long));
        Err("it is late")
    }

    fn write(&mut self, _: usize, _: u64, _: &[u8], _: bool) -> Result<(), &'static str> {
        Err("a collector writes nothing by itself")
    }

    fn flush(&mut self, _: usize) -> Result<(), &'static str> {
        Err("a collector flushes nothing by itself")
    }
}

impl Life {
    /// A segment is collected while a member is late: it is waited for once, and briefly, while the
    /// others have all; as long as any IO where one of these cannot be read. All is found.
    pub(crate) fn run_with_a_late_member(mut self) {
        self.fill();
        let layout = *self.array.layout();
        assert_eq!(self.repair(0, 0), Repair::Begun);
        let victim = self.act(|array, acting| array.begin_collecting(acting));
        let mut collecting = Collecting::new(victim.unwrap());
        let begun = collecting.victim;
        let whole = self.load_until(&mut collecting, &Cell::new(0), u32::MAX);
        assert!(whole.records > 0 && whole.lost_columns == 0);
        let at = layout.segment(begun.segment());
        let mut load = |life: &mut Self, late: usize| {
            let reads = Cell::new((0, 0));
            collecting.victim = begun;
            let devices = Late(OneByOne(&mut life.members), late, &reads);
            let array = (layout, life.array.tag());
            let loaded = collecting.load_of((devices, || false), array);
            assert_eq!(loaded, whole, "{}: {late} is late", life.label());
            reads.get()
        };
        for late in 0..MEMBERS {
            assert_eq!(load(&mut self, late), (1, 0), "{late} is late");
        }
        // Of a head, or behind one.
        let mut rebuilt = 0;
        for sector in (0..layout.segment_bytes()).step_by(SECTOR) {
            self.members[1].spoil(at + sector);
            for late in [0, 2] {
                let (soon, long) = load(&mut self, late);
                assert!(soon <= 1, "{late} is late beside sector {sector}");
                rebuilt += u32::from(long > 0);
            }
            self.members[1].mend();
        }
        assert!(rebuilt > 0);
    }

    /// A segment is collected that has bad sectors, and the array is stopped after any number of
    /// reads: none follows.
    pub(crate) fn run_with_a_stop(mut self) {
        self.fill();
        let layout = *self.array.layout();
        assert_eq!(self.repair(0, 0), Repair::Begun);
        let victim = self.act(|array, acting| array.begin_collecting(acting));
        let mut collecting = Collecting::new(victim.unwrap());
        let at = layout.segment(collecting.victim.segment());
        for sector in (0..layout.segment_bytes()).step_by(SECTOR) {
            // Each other unit of one member, and some of another one.
            let unit = sector / layout.unit_bytes() as u64;
            if unit % 2 == 1 {
                self.members[1].spoil(at + sector);
            }
            if unit % 8 == 3 {
                self.members[2].spoil(at + sector);
            }
        }
        let reads = Cell::new(0);
        let whole = self.load_until(&mut collecting, &reads, u32::MAX);
        let all = reads.replace(0);
        assert!(!whole.is_stopped && whole.lost_columns > 0 && all > 100);
        for stop_at in (0..all).step_by(7) {
            collecting.victim = victim.unwrap();
            let loaded = self.load_until(&mut collecting, &reads, stop_at);
            let found = (loaded.is_stopped, reads.replace(0));
            assert_eq!(found, (true, stop_at), "{}", self.label());
        }
    }

    /// Writers have as many batches in flight as they may, and more than one waits: a segment is
    /// collected nevertheless, though whoever collects it comes after them each time.
    pub(crate) fn run_with_writers(mut self) {
        self.fill();
        let first = self.spot_of(0).segment;
        assert_eq!(self.repair(0, 0), Repair::Begun);
        let enough_bytes = (WINDOW + 1) * record_bytes_max(self.array.layout());
        // What is collected is left alone.
        let half = self.blocks() / 2;
        let mut places = (half..self.blocks() - 16).step_by(16).cycle();
        for step in 0..60 {
            self.step = step;
            while self.waiting_bytes() < enough_bytes {
                self.write_at(places.next().unwrap(), 16, false);
            }
            self.end_any();
            self.settle();
            self.collect();
            if self.spot_of(0).segment != first {
                return;
            }
        }
        panic!("{}: block 0 is where it was", self.label());
    }

    /// A batch of who collects is in flight: writers have all that is left, and leave none for it.
    pub(crate) fn run_with_who_collects(mut self) {
        self.fill();
        assert_eq!(self.repair(0, 0), Repair::Begun);
        let is_moving = |life: &Self| life.members.iter().any(|m| !m.in_flight.is_empty());
        while !is_moving(&self) {
            self.collect();
        }
        for batch in 1..=WINDOW {
            self.write_at(self.blocks() / 2 + batch as u64 * 16, 4, false);
            let begun = self.put((Purpose::Write, false), |life, packing| {
                let write = life.waiting.pop_front().unwrap();
                for (record, _) in &write.records {
                    life.array.add(packing, record).unwrap();
                }
            });
            assert_eq!(begun.is_ok(), batch < WINDOW, "{}: {begun:?}", self.label());
        }
    }

    /// Batches follow each other: all segments are looked through when one of them begins, and not
    /// for each batch, as an array of a terabyte has half a million.
    pub(crate) fn run_with_looks(mut self) {
        let first = self.array.next_sequence();
        LOOKS.set(0);
        let mut segments = BTreeSet::new();
        while self.array.next_sequence() < first + 200 {
            self.write_at(0, 1, false);
            self.settle();
            while self.history.blocks[0].is_in_flight {
                self.end_any();
                self.settle();
            }
            segments.insert(self.spot_of(0).segment);
        }
        let most = 3 * segments.len() as u64;
        // A look at one, for `spot_of`.
        let looks = LOOKS.get() - 200;
        assert!(looks <= most, "{}: {looks} looks", self.label());
    }

    /// The disk is full, so that segments are few and none is gained by collecting: they are not
    /// looked through again each time that the driver asks, but when something has changed.
    pub(crate) fn run_with_nothing_to_gain(mut self) {
        self.fill();
        self.rest();
        assert_eq!(self.array.need(false), Need::Collect, "{}", self.label());
        LOOKS.set(0);
        for _ in 0..1000 {
            self.collect();
            self.settle();
        }
        assert!(LOOKS.get() <= 2, "{}: {} looks", self.label(), LOOKS.get());
        // Nor each time that something was flushed.
        LOOKS.set(0);
        for _ in 0..100 {
            self.write_at(0, 1, false);
            self.settle();
            self.drain();
            self.flush_all();
            self.collect();
        }
        // One at the segment of what is written over, and one when a dump has ended.
        let looks = LOOKS.get();
        assert!(looks <= 220, "{}: {looks} looks", self.label());
        // Half of one is trimmed: the rest of it is worth to be moved now.
        let first = self.spot_of(32).segment;
        let mut at = 32;
        while self.spot_of(at + 15).segment == first {
            at += 32;
        }
        for start in (32..at).step_by(32) {
            self.write_at(start, 16, true);
            self.settle();
        }
        self.rest();
        for block in (48..at).step_by(32) {
            assert_ne!(self.spot_of(block).segment, first, "{}", self.label());
        }
        assert!(at >= 96, "{}: {at}", self.label());
    }

    /// Ends all that is in flight, and collects as long as there is something to be collected.
    fn rest(&mut self) {
        for _ in 0..200 {
            self.drain();
            self.collect();
            self.settle();
        }
        assert!(self.collecting.is_none(), "{}", self.label());
    }

    fn load_until(&mut self, of: &mut Collecting, reads: &Cell<u32>, stop_at: u32) -> Loaded {
        let array = (*self.array.layout(), self.array.tag());
        let devices = Counted(OneByOne(&mut self.members), reads);
        of.load_of((devices, || reads.get() >= stop_at), array)
    }

    /// Goes on with collecting, if it is needed.
    pub(crate) fn collect(&mut self) {
        let Some(mut collecting) = self.collecting.take() else {
            let is_blocked = !self.waiting.is_empty();
            if matches!(self.array.need(is_blocked), Need::Collect | Need::Refuse) {
                let victim = self.act(|array, acting| array.begin_collecting(acting));
                self.collecting = victim.map(Collecting::new);
            }
            return;
        };
        if collecting.next < collecting.loaded.records {
            self.move_some(&mut collecting);
        } else if collecting.loaded.is_complete {
            self.array.end_collecting(&collecting.victim);
            return;
        } else {
            self.load(&mut collecting);
        }
        self.collecting = Some(collecting);
    }

    fn load(&mut self, collecting: &mut Collecting) {
        collecting.loaded = self.load_until(collecting, &Cell::new(0), u32::MAX);
        collecting.next = 0;
    }

    /// Moves what is live of the records that were read.
    fn move_some(&mut self, collecting: &mut Collecting) {
        let mut next = collecting.next;
        let begun = self.put((Purpose::Collect, false), |life, packing| {
            let with = (*life.array.layout(), life.array.next_sequence());
            while next < collecting.loaded.records {
                let staged = collecting.records[next].unwrap();
                if let Some(record) = staged.live(&life.array) {
                    let payload = &collecting.payloads[staged.payload()];
                    let parts = rewritten(&record, payload);
                    let before = *packing;
                    let rooms: Option<Vec<_>> = parts
                        .iter()
                        .map(|(record, _)| life.array.add(packing, record))
                        .collect();
                    let Some(rooms) = rooms else {
                        *packing = before;
                        break;
                    };
                    for ((record, payload), room) in parts.iter().zip(rooms) {
                        life.columns
                            .write(room, (record, payload), (&with.0, with.1), &Crc)
                            .unwrap();
                    }
                }
                next += 1;
            }
        });
        match begun {
            Ok(_) => collecting.next = next,
            Err(Wait::Segment) => {
                self.act(|array, acting| array.free_empty(true, acting));
            }
            Err(_) => {}
        }
    }
}
