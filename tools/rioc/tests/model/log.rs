// SPDX-License-Identifier: GPL-2.0

//! A store that is a log, as `seglog` promises one: after a crash there are all batches up to one
//! of those that had begun, and no fewer than were durable. What is behind it is garbage.

use std::{
    collections::{
        BTreeMap,
        VecDeque, //
    },
    rc::Rc, //
};

use rioc::proto::{
    body::{
        self,
        Body,
        Checksum,
        Mark,
        CHANGES_MAX,
        TAGGED_BYTES, //
    },
    entry::{
        Entry,
        ENTRY_BYTES, //
    },
    index::{
        Changes,
        Source, //
    },
    slot::{
        Slot,
        Stored,
        NONE, //
    },
    span::BLOCK_BYTES, //
};

use crate::{
    crash::Logged,
    random::Random,
    store::{
        Block,
        Objects,
        Storage, //
    },
};

pub(crate) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

const SEGMENTS: usize = 11;
const SEGMENT_BYTES: usize = 20 * TAGGED_BYTES;
/// The head of a batch, which is `seglog`'s.
const HEAD_BYTES: usize = 96;
/// The blocks and the slots that an operation of these lives may need.
const BLOCKS: usize = 6;
const SLOTS_OF_PAGE: usize = 16;

/// What the user of the log does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// A segment is written again before the batch is durable that has left nothing in it.
    ReusedBeforeDurable,
    /// A segment is written again although the log is followed through it.
    ReusedBeforeDump,
    /// A dump counts before the batches are durable of which its pages know.
    DumpBeforeBatches,
    /// The log is followed from the batch that was open when the dump ended.
    StartAtEnd,
}

/// A batch that has begun.
#[derive(Clone)]
struct Batch {
    sequence: u64,
    segment: usize,
    place: u64,
    bytes: Rc<Vec<u8>>,
    /// The objects behind it.
    objects: Objects,
}

#[derive(Clone, Copy, Default)]
struct Segment {
    /// The last batch in it; 0 if there is none.
    last: u64,
    /// The extents that are used.
    live: u32,
    /// The batch that has left nothing in it.
    emptied_by: u64,
}

/// A dump of the entries.
#[derive(Clone)]
struct Dump {
    entries: Vec<Entry>,
    start: u64,
    pages: usize,
    /// The batch that was open when the last page was made.
    knows: u64,
}

pub(crate) struct Log {
    device: Vec<u8>,
    segments: Vec<Segment>,
    /// The batches that the log is followed through, and those that are not durable.
    batches: VecDeque<Batch>,
    durable: u64,
    dump: Dump,
    next_dump: Option<Dump>,
    body: Option<Body<Vec<u8>, Vec<u32>>>,
    /// The place of the body: the segment, and the byte in it.
    at: (usize, usize),
    sequence: u64,
    /// Where each extent is that is used: its blocks.
    live: BTreeMap<u64, usize>,
    /// The moments before blocks were put.
    marks: BTreeMap<u64, Mark>,
    changed: Vec<u32>,
    random: Random,
    mistake: Mistake,
    is_full: bool,
    reused: u64,
}

impl Log {
    pub(crate) fn new(slots: usize, seed: u64, mistake: Mistake) -> Self {
        let mut log = Self {
            device: vec![0; SEGMENTS * SEGMENT_BYTES],
            segments: vec![Segment::default(); SEGMENTS],
            batches: VecDeque::new(),
            durable: 0,
            dump: Dump {
                entries: vec![[0; ENTRY_BYTES]; slots],
                start: 1,
                pages: 0,
                knows: 0,
            },
            next_dump: None,
            body: None,
            at: (0, 0),
            sequence: 1,
            live: BTreeMap::new(),
            marks: BTreeMap::new(),
            changed: Vec::new(),
            random: Random::new(seed),
            mistake,
            is_full: false,
            reused: 0,
        };
        log.open();
        log
    }

    fn is_free(&self, number: usize) -> bool {
        let segment = &self.segments[number];
        let is_durable = segment.emptied_by <= self.durable && segment.last <= self.durable;
        let is_passed = segment.last < self.dump.start;
        number != self.at.0
            && segment.live == 0
            && (is_durable || self.mistake == Mistake::ReusedBeforeDurable)
            && (segment.last == 0 || is_passed || self.mistake == Mistake::ReusedBeforeDump)
    }

    fn free_segments(&self) -> usize {
        (0..SEGMENTS).filter(|number| self.is_free(*number)).count()
    }

    /// Begins the body of the next batch, in this segment or in a free one.
    fn open(&mut self) {
        let needed = HEAD_BYTES + BLOCKS * TAGGED_BYTES + CHANGES_MAX * 36;
        let (segment, at) = self.at;
        if at + needed > SEGMENT_BYTES {
            // The one that was emptied last, of which most can go wrong.
            let free = (0..SEGMENTS).filter(|number| self.is_free(*number));
            let Some(free) = free.max_by_key(|number| self.segments[*number].emptied_by) else {
                self.is_full = true;
                return;
            };
            self.reused += u64::from(self.segments[free].last > 0);
            self.at = (free, 0);
            self.segments[free] = Segment {
                emptied_by: u64::MAX,
                ..Segment::default()
            };
            return self.open();
        }
        let place = (segment * SEGMENT_BYTES + at + HEAD_BYTES) as u64;
        let room = (SEGMENT_BYTES - at - HEAD_BYTES).min(9 * TAGGED_BYTES + CHANGES_MAX * 36);
        let body = Body::new(vec![0; room], (place, self.sequence), vec![0; 400]);
        self.segments[segment].last = self.sequence;
        self.body = Some(body);
        self.is_full = false;
    }

    /// The next life of the log, behind batch `end`, in a segment of its own.
    fn begin_again(&mut self, slots: &[Slot], end: u64) {
        (self.durable, self.sequence) = (end, end + 1);
        (self.next_dump, self.body) = (None, None);
        self.changed.clear();
        self.live.clear();
        for segment in &mut self.segments {
            *segment = Segment::default();
        }
        for batch in &self.batches {
            self.segments[batch.segment].last = batch.sequence;
        }
        for slot in slots {
            if let Slot::Extent(extent) = slot {
                let segment = extent.stored.place as usize / SEGMENT_BYTES;
                self.segments[segment].live += 1;
                self.live.insert(extent.stored.place, extent.blocks.into());
            }
        }
        // A segment is always left for this.
        let free = (0..SEGMENTS).find(|number| *number != self.at.0 && self.is_free(*number));
        match free {
            Some(free) => {
                self.at = (free, 0);
                self.open();
            }
            None => self.is_full = true,
        }
    }
}

impl Logged for Log {
    fn prepare(&mut self, _moves: bool, objects: &Objects, entry: &dyn Fn(u32) -> Entry) -> bool {
        let has_room = |body: &Body<Vec<u8>, Vec<u32>>| body.has_room(BLOCKS, CHANGES_MAX);
        if !self.body.as_ref().is_some_and(has_room) {
            self.close(objects, entry);
        }
        if self.body.is_none() {
            self.open();
        }
        self.body.is_some()
    }

    fn is_low(&self) -> bool {
        self.is_full || self.free_segments() <= 4
    }

    fn victim(&self) -> Option<usize> {
        let each = self.segments.iter().enumerate();
        let movable = each.filter(|(number, segment)| {
            *number != self.at.0 && segment.live > 0 && segment.last <= self.durable
        });
        let least = movable.min_by_key(|(_, segment)| segment.live);
        let least = least.filter(|_| self.free_segments() > 1);
        least.map(|(number, _)| number)
    }

    fn is_in(&self, stored: &Stored, segment: usize) -> bool {
        stored.place as usize / SEGMENT_BYTES == segment
    }

    fn flush(&mut self) {
        for batch in self.batches.iter().filter(|b| b.sequence > self.durable) {
            let at = batch.place as usize;
            self.device[at..at + batch.bytes.len()].copy_from_slice(&batch.bytes);
        }
        self.durable = self.sequence - 1;
    }

    fn crash(&mut self) -> (Vec<Slot>, Objects) {
        let begun = self
            .batches
            .back()
            .map_or(self.durable, |batch| batch.sequence);
        let end = self.durable + self.random.below((begun - self.durable + 1) as usize) as u64;
        let lost: Vec<_> = self
            .batches
            .iter()
            .filter(|b| b.sequence > self.durable)
            .cloned()
            .collect();
        for batch in lost {
            let (at, len) = (batch.place as usize, batch.bytes.len());
            let part = match self.random.below(3) {
                _ if batch.sequence <= end => len,
                0 => 0,
                1 => len,
                _ => self.random.below(len),
            };
            self.device[at..at + part].copy_from_slice(&batch.bytes[..part]);
        }
        // The body that was open may have been on its way, too.
        let (segment, at) = self.at;
        if self.body.is_some() && self.random.below(2) == 0 {
            let at = segment * SEGMENT_BYTES + at;
            self.device[at..at + 200].fill(0xaa);
        }
        let mut slots = vec![Slot::Free(NONE); self.dump.entries.len()];
        for (slot, entry) in slots.iter_mut().zip(&self.dump.entries) {
            *slot = rioc::proto::entry::slot(entry).unwrap();
        }
        let followed = self.dump.start..=end;
        for batch in self
            .batches
            .iter()
            .filter(|b| followed.contains(&b.sequence))
        {
            let at = batch.place as usize;
            let bytes = &self.device[at..at + batch.bytes.len()];
            body::assign(&mut slots, bytes).unwrap();
        }
        let mut last = self.batches.iter().filter(|b| b.sequence <= end);
        let objects = last.next_back().map(|b| b.objects.clone());
        self.batches.retain(|batch| batch.sequence <= end);
        self.begin_again(&slots, end);
        (slots, objects.unwrap_or_default())
    }

    fn close(&mut self, objects: &Objects, entry: &dyn Fn(u32) -> Entry) {
        let Some(body) = self.body.take_if(|body| !body.is_empty()) else {
            return;
        };
        let (mut bytes, used) = body.finish(entry).unwrap();
        bytes.truncate(used);
        let (segment, at) = self.at;
        self.batches.push_back(Batch {
            sequence: self.sequence,
            segment,
            place: (segment * SEGMENT_BYTES + at + HEAD_BYTES) as u64,
            bytes: Rc::new(bytes),
            objects: objects.clone(),
        });
        // An empty segment may stay so.
        if self.segments[segment].live == 0 {
            self.segments[segment].emptied_by = self.sequence;
        }
        self.at.1 += (HEAD_BYTES + used).next_multiple_of(512);
        self.sequence += 1;
        self.marks.clear();
        self.open();
    }

    fn step_dump(&mut self, entry: &dyn Fn(u32) -> Entry) -> bool {
        let slots = self.dump.entries.len();
        let oldest = self.durable + 1;
        let dump = self.next_dump.get_or_insert_with(|| Dump {
            entries: vec![[0; ENTRY_BYTES]; slots],
            start: oldest,
            pages: 0,
            knows: 0,
        });
        let from = dump.pages * SLOTS_OF_PAGE;
        for slot in from..slots.min(from + SLOTS_OF_PAGE) {
            dump.entries[slot] = entry(slot as u32);
        }
        if from < slots {
            dump.pages += 1;
            let is_filled = self.body.as_ref().is_some_and(|body| !body.is_empty());
            dump.knows = self.sequence - u64::from(!is_filled);
            return false;
        }
        if dump.knows <= self.durable || self.mistake == Mistake::DumpBeforeBatches {
            let mut dump = self.next_dump.take().unwrap();
            if self.mistake == Mistake::StartAtEnd {
                dump.start = oldest;
            }
            self.batches
                .retain(|batch| batch.sequence >= dump.start.min(self.durable));
            self.dump = dump;
            return true;
        }
        false
    }

    fn written(&self) -> u64 {
        self.reused
    }
}

impl Storage for Log {
    fn put(&mut self, bytes: &[u8]) -> Stored {
        let blocks = bytes.chunks(BLOCK_BYTES as usize);
        let count = blocks.len();
        let blocks = blocks.map(|block| (Crc.crc32c(block), block));
        let body = self.body.as_mut().expect("prepared");
        let mark = body.mark();
        let stored = body.put(blocks, &Crc).expect("room");
        self.marks.insert(stored.place, mark);
        self.live.insert(stored.place, count);
        self.segments[self.at.0].live += 1;
        stored
    }

    fn take_back(&mut self, stored: Stored) {
        assert!(self.live.remove(&stored.place).is_some());
        self.segments[self.at.0].live -= 1;
        if let Some(body) = &mut self.body {
            body.go_back(self.marks[&stored.place]);
        }
    }

    fn get(&self, source: &Source, skipped: u32) -> Block {
        let stored = &source.stored;
        let place = body::place_of(stored, source.first + skipped as u8);
        let open = self.body.as_ref().and_then(|body| body.at(place));
        let mut flying = self.batches.iter().filter(|b| b.sequence > self.durable);
        let flying = flying.find_map(|batch| {
            let at = place.checked_sub(batch.place)? as usize;
            batch.bytes.get(at..at + TAGGED_BYTES)
        });
        let at = place as usize;
        let found = open
            .or(flying)
            .unwrap_or(&self.device[at..at + TAGGED_BYTES]);
        let (_, block) = body::block(found, stored, &Crc).expect("the block");
        block.try_into().unwrap()
    }

    fn places(&self) -> Vec<(u64, usize)> {
        self.live
            .iter()
            .map(|(place, blocks)| (*place, *blocks))
            .collect()
    }

    fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }

    fn settle(&mut self, objects: &Objects, entry: &dyn Fn(u32) -> Entry) {
        match self.random.below(12) {
            0..4 => self.close(objects, entry),
            4 => {
                self.close(objects, entry);
                self.flush();
            }
            5..9 => {
                self.step_dump(entry);
            }
            _ => (),
        }
        self.prepare(false, objects, entry);
    }
}

impl Changes for Log {
    fn changed(&mut self, slot: u32) {
        self.changed.push(slot);
        if let Some(body) = &mut self.body {
            body.change(slot);
        }
    }

    fn freed(&mut self, stored: Stored, blocks: u8) {
        let freed = self.live.remove(&stored.place).expect("freed twice");
        assert_eq!(freed, usize::from(blocks));
        let segment = &mut self.segments[stored.place as usize / SEGMENT_BYTES];
        segment.live -= 1;
        segment.emptied_by = self.sequence;
    }
}
