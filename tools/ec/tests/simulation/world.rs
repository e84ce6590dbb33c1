// SPDX-License-Identifier: GPL-2.0

//! An array in use: what a driver does, and what happens to it.

mod acting;
mod assembling;
mod collecting;
mod content;
mod damaging;
mod failing;
mod looks;
mod losing;
mod reading;
mod refusing;
mod spoiling;

use std::collections::VecDeque;

use rnbd_ec::proto::{
    array::{
        Array,
        Io,
        Memory,
        Need, //
    },
    codec::Codec,
    geometry::UNIT_BLOCKS,
    group_commit,
    packing::{
        record_bytes_max,
        Columns,
        Packed, //
    },
};
use seglog::{
    collect::Purpose,
    log::Wait,
    members::{
        column_of,
        Members,
        DATA_COLUMNS, //
    },
    record::{
        Record,
        CODEC_ZEROES, //
    },
    Checksum, //
};

use self::{
    acting::Acting,
    assembling::Words,
    collecting::Collecting,
    looks::Counted,
    reading::Reading, //
};
use crate::{
    history::{
        History,
        Version, //
    },
    member::Member,
    random::Random,
    Setting,
};

pub(crate) use self::damaging::{
    slots::Newest,
    End,
    Extent,
    Tally, //
};

pub(crate) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

/// XORs the second slice into the first.
fn xor_into(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

/// The memory of an array on the host.
pub(crate) struct OnHost;

impl Memory for OnHost {
    type Words = Words;
    type Segments = Counted;
    type Packed = Vec<Packed>;
}

/// A write that waits for its batch, or for its end.
struct Write {
    records: Vec<(Record, Vec<u8>)>,
    blocks: Vec<(usize, Version)>,
}

/// Returns the bytes of the records of writes.
fn bytes_of<'a>(writes: impl Iterator<Item = &'a Write>) -> usize {
    let records = writes.flat_map(|write| &write.records);
    records.map(|(record, _)| record.bytes()).sum()
}

/// The result of a life.
pub(crate) struct Done {
    pub(crate) acknowledged: u64,
    pub(crate) unreadable: u64,
}

pub(crate) struct Life {
    setting: Setting,
    seed: u64,
    random: Random,
    members: [Member; 3],
    history: History,
    array: Array<OnHost>,
    columns: Columns<Vec<u8>>,
    waiting: VecDeque<Write>,
    slots: [Vec<Write>; 4],
    flushes: u32,
    reads: Vec<Reading>,
    collecting: Option<Collecting>,
    versions: Version,
    acknowledged: u64,
    refused: u64,
    step: u32,
    /// The device of a member that another one has replaced.
    shelf: Option<(usize, Member)>,
    /// Byte of a member at which the next batch is expected.
    log_end: u64,
    /// The number of times that something that could not be read has kept an array from being
    /// assembled, or was lost.
    unreadable: u64,
}

impl Life {
    pub(crate) fn run(mut self) -> Done {
        if self.setting.is_raw {
            self.fill();
        }
        for step in 0..self.setting.steps {
            self.step = step;
            self.happen();
            self.settle();
        }
        self.drain();
        self.heal();
        if self.setting.spoilt == 0 {
            self.check_redundancy();
        }
        self.check_power_failure();
        assert_eq!(self.refused > 0, self.setting.overcommits);
        Done {
            acknowledged: self.acknowledged,
            unreadable: self.unreadable,
        }
    }

    fn happen(&mut self) {
        if self.setting.spoilt > 0 && self.random.below(40) == 0 {
            self.spoil();
        }
        match self.random.below(100) {
            0..20 => self.write(),
            20..22 => self.flush(),
            22..35 => self.begin_read(),
            35..45 => self.end_read(),
            45..85 => self.end_any(),
            85..95 => self.collect(),
            95 if self.setting.crashes && self.random.below(self.rarity(12)) == 0 => {
                self.check_power_failure();
            }
            96 if self.setting.fails && self.random.below(self.rarity(6)) == 0 => self.fail_one(),
            97..99 if self.setting.fails => self.return_one(),
            99 if self.setting.fails
                && self.setting.crashes
                && self.random.below(self.rarity(12)) == 0 =>
            {
                self.fail_two();
            }
            _ => {}
        }
    }

    /// Writes all blocks, in their order.
    fn fill(&mut self) {
        let mut first = 0;
        while first < self.blocks() {
            let count = (self.blocks() - first).min(16);
            self.write_at(first, count, false);
            first += count;
            self.drain();
        }
    }

    /// Brings back a member that is missing.
    fn heal(&mut self) {
        for round in 0..400 {
            if self.array.live() == Members::ALL {
                self.drain();
                return;
            }
            for member in &mut self.members {
                member.is_dead = false;
            }
            self.return_one();
            self.settle();
            self.drain();
            for _ in 0..50 {
                self.collect();
                self.settle();
                self.end_any();
                self.settle();
            }
            assert!(round < 399, "{}: it does not heal", self.label());
        }
    }

    /// Ends all that is in flight, and begins what waits, until nothing does.
    fn drain(&mut self) {
        for round in 0..20_000 {
            let is_idle = self.members.iter().all(|m| m.in_flight.is_empty());
            if is_idle && self.waiting.is_empty() && self.slots.iter().all(Vec::is_empty) {
                return;
            }
            self.end_any();
            self.end_read();
            self.settle();
            self.collect();
            self.settle();
            assert!(round < 19_999, "{}: it does not end", self.label());
        }
    }

    /// Returns how rare something is.
    fn rarity(&self, n: u64) -> u64 {
        if self.setting.storm {
            n / 6
        } else {
            n
        }
    }

    fn label(&self) -> String {
        format!("seed {} step {}", self.seed, self.step)
    }

    fn blocks(&self) -> u64 {
        self.history.blocks.len() as u64 * self.setting.percent / 100
    }

    fn write(&mut self) {
        let first = self.random.below(self.blocks());
        let counts: &[u64] = if self.setting.is_raw {
            &[1]
        } else {
            &[1, 1, 1, 2, 4, 8, 16]
        };
        let count = counts[self.random.below(counts.len() as u64) as usize];
        let is_zeroes = match self.setting {
            Setting {
                overcommits: true, ..
            } => self.random.below(3) == 0,
            Setting { is_raw, .. } => !is_raw && self.random.below(10) == 0,
        };
        self.write_at(first, count, is_zeroes);
    }

    fn write_at(&mut self, first: u64, count: u64, is_zeroes: bool) {
        let last = (first + count).min(self.blocks());
        let is_busy = |block: u64| self.history.blocks[block as usize].is_in_flight;
        if (first..last).any(is_busy) || self.waiting.len() > 60 {
            return;
        }
        let mut write = Write {
            records: Vec::new(),
            blocks: Vec::new(),
        };
        let mut at = first;
        while at < last {
            let end = (at + 1).next_multiple_of(UNIT_BLOCKS.into()).min(last);
            let end = if is_zeroes { last } else { end };
            let record = self.record((at..end, is_zeroes), &mut write.blocks);
            write.records.push(record);
            at = end;
        }
        for (block, version) in &write.blocks {
            self.history.issue(*block, *version);
        }
        self.waiting.push_back(write);
    }

    /// Makes a record of new versions of blocks.
    fn record(
        &mut self,
        (range, is_zeroes): (std::ops::Range<u64>, bool),
        blocks: &mut Vec<(usize, Version)>,
    ) -> (Record, Vec<u8>) {
        let first = blocks.len();
        for block in range.clone() {
            self.versions += 1;
            let version = if is_zeroes { 0 } else { self.versions };
            blocks.push((block as usize, version));
        }
        let codec = match self.random.below(3) {
            _ if is_zeroes => None,
            0 => Some(Codec::Raw),
            _ if self.setting.is_raw => Some(Codec::Raw),
            _ => Some(Codec::Lz4),
        };
        let more = self.random.below(4096 - 16);
        let payload = content::encode(codec, &blocks[first..], more as usize);
        let record = Record {
            index: range.start,
            count: (range.end - range.start) as u32,
            codec: codec.map_or(CODEC_ZEROES, Codec::number),
            payload_bytes: payload.len() as u16,
            skipped: 0,
        };
        (record, payload)
    }

    fn flush(&mut self) {
        self.flushes += 1;
    }

    /// Lets an IO in flight end, of any member.
    fn end_any(&mut self) {
        let all: usize = self.members.iter().map(|m| m.in_flight.len()).sum();
        if all == 0 {
            return;
        }
        let mut place = self.random.below(all as u64) as usize;
        for number in 0..3 {
            let len = self.members[number].in_flight.len();
            if place < len {
                let (io, is_well) = self.members[number].end(place);
                self.array.ended(io, number, is_well);
                return;
            }
            place -= len;
        }
    }

    /// Carries out what a driver does after each event.
    fn settle(&mut self) {
        self.act(|array, acting| array.settle(acting, &Crc));
        if self.begin_batches(Purpose::Write) {
            self.begin_zeroes();
            self.refuse();
        }
        if self.flushes > 0 {
            let has_begun = self.act(|array, acting| array.flush(acting));
            if has_begun {
                self.flushes = 0;
                self.history.begin_flush();
            }
        }
        if self.array.need(false) == Need::Batch && self.waiting.is_empty() {
            let _ = self.put((Purpose::Collect, false), |_, _| {});
        }
        self.act(|array, acting| array.free_empty(false, acting));
        self.act(|array, acting| array.settle(acting, &Crc));
    }

    /// Begins batches of what waits; whether it waits for a segment.
    fn begin_batches(&mut self, purpose: Purpose) -> bool {
        let mut begins_segment = false;
        while self.is_due() {
            let mut taken = Vec::new();
            let with = (purpose, begins_segment);
            let begun = self.put(with, |life, packing| {
                while let Some(write) = life.waiting.front() {
                    let before = *packing;
                    let rooms: Option<Vec<_>> = write
                        .records
                        .iter()
                        .map(|(record, _)| life.array.add(packing, record))
                        .collect();
                    let Some(rooms) = rooms else {
                        *packing = before;
                        break;
                    };
                    let write = life.waiting.pop_front().unwrap();
                    let with = (*life.array.layout(), life.array.next_sequence());
                    for ((record, payload), room) in write.records.iter().zip(rooms) {
                        life.columns
                            .write(room, (record, payload), (&with.0, with.1), &Crc)
                            .unwrap();
                    }
                    taken.push(write);
                }
            });
            match begun {
                Ok(Some(slot)) => {
                    self.slots[slot] = taken;
                    begins_segment = false;
                }
                Ok(None) => {
                    assert!(!begins_segment, "{}: an empty batch", self.label());
                    begins_segment = true;
                }
                Err(Wait::Segment) => {
                    assert!(taken.is_empty());
                    return true;
                }
                Err(_) => {
                    assert!(taken.is_empty());
                    return false;
                }
            }
        }
        false
    }

    /// Whether a batch begins of what waits: as the driver has it, or always.
    fn is_due(&self) -> bool {
        let gathers = self.seed % 2 == 0;
        let in_flight_bytes = if gathers {
            bytes_of(self.slots.iter().flatten())
        } else {
            0
        };
        group_commit::is_due(
            self.waiting_bytes(),
            in_flight_bytes,
            record_bytes_max(self.array.layout()),
        )
    }

    /// Returns the bytes of the records that wait.
    fn waiting_bytes(&self) -> usize {
        bytes_of(self.waiting.iter())
    }

    /// Begins a batch that `fill` fills; returns its slot.
    fn put(
        &mut self,
        (purpose, begins_segment): (Purpose, bool),
        fill: impl FnOnce(&mut Self, &mut rnbd_ec::proto::packing::Packing),
    ) -> Result<Option<usize>, Wait> {
        let mut packing = self.array.pack(purpose, begins_segment)?;
        fill(self, &mut packing);
        if packing.is_empty() && purpose != Purpose::Collect {
            return Ok(None);
        }
        let layout = *self.array.layout();
        let bodies = self.columns.finish(&packing, &layout, &Crc, xor_into);
        let begun = self.array.begin((&packing, purpose), bodies, &Crc)?;
        let head = begun.head;
        self.log_end = begun.at + head.column_bytes(&layout) as u64;
        for member in head.used.iter() {
            let column = column_of(head.place.segment, member);
            let from = self.columns.of(&head, column);
            let mut bytes = from[..head.column_bytes(&layout)].to_vec();
            bytes[..begun.bytes.len()].copy_from_slice(&begun.bytes);
            let io = Io::Column(head.sequence);
            self.members[member].begin_write(io, begun.at, bytes, false);
        }
        assert!(head.used.count() >= DATA_COLUMNS);
        Ok(Some(begun.slot))
    }

    /// Calls the array with what it begins IOs by.
    fn act<T>(&mut self, call: impl FnOnce(&mut Array<OnHost>, &mut Acting<'_>) -> T) -> T {
        let mut acting = Acting::new(&mut self.members, &mut self.random);
        let result = call(&mut self.array, &mut acting);
        let (acknowledged, flushed) = acting.told();
        for slot in acknowledged {
            for write in std::mem::take(&mut self.slots[slot]) {
                for (block, version) in write.blocks {
                    self.history.acknowledge(block, version);
                    self.acknowledged += 1;
                }
            }
        }
        if flushed {
            self.history.end_flush();
        }
        result
    }
}
