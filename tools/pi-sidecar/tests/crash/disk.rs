// SPDX-License-Identifier: GPL-2.0

//! The device: what is durable, what is in its cache, and what may be there after a crash.

use std::{
    collections::HashMap,
    ops::Range,
    rc::Rc, //
};

use proto::sidecar::{
    layout::{
        Layout,
        SUPERBLOCK, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::Mistake;

/// The smallest unit of records.
pub(crate) const TINY_BYTES: usize = 64;

/// A checksum that is faster than a CRC, as contents are few and differ. It can make mistakes with
/// records of tiny units.
#[derive(Clone, Copy)]
pub(crate) struct Fast(pub(crate) Mistake);

impl Fast {
    pub(crate) const RIGHT: Self = Self(Mistake::None);

    /// What it covers.
    fn covered<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        // Data blocks and superblocks have no such length.
        let is_record = (bytes.len() + 8) % TINY_BYTES == 0;
        match self.0 {
            Mistake::FirstUnitUncovered if is_record => &bytes[TINY_BYTES..],
            Mistake::UnitsBetweenUncovered if is_record => &bytes[..TINY_BYTES],
            _ => bytes,
        }
    }
}

impl Checksum for Fast {
    fn crc64(&self, bytes: &[u8]) -> u64 {
        let mut sum = 0x9e37_79b9_7f4a_7c15u64;
        for word in self.covered(bytes).chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            sum = (sum.rotate_left(5) ^ u64::from_le_bytes(padded))
                .wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        sum ^ (sum >> 32)
    }
}

/// Which content each part of each block of interest has.
pub(crate) type Image = Vec<u32>;

/// A write that may not be durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    pub(crate) place: usize,
    /// All parts of the block, or some from its start on.
    pub(crate) parts: Vec<u32>,
    /// It has ended, so that reads see it.
    pub(crate) is_done: bool,
}

/// The bytes at which a write can be torn.
#[derive(Clone, Copy)]
pub(crate) struct Borders<'a> {
    pub(crate) records: &'a [usize],
    pub(crate) others: &'a [usize],
}

fn parts(borders: &[usize]) -> Vec<Range<usize>> {
    let ends = borders.iter().copied().chain([BLOCK_BYTES]);
    let starts = [0].into_iter().chain(borders.iter().copied());
    starts.zip(ends).map(|(start, end)| start..end).collect()
}

/// The blocks of interest, the parts that a write can be torn into, and all contents of parts.
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    blocks: Vec<u64>,
    /// Of the slots of the journal, which come first, and of the other blocks.
    parts: [Vec<Range<usize>>; 2],
    contents: Vec<Rc<[u8]>>,
    numbers: HashMap<Rc<[u8]>, u32>,
    known: HashMap<(bool, Box<[u8]>), Vec<u32>>,
}

impl Shape {
    /// `others`: blocks beside journal, PI blocks and data.
    pub(crate) fn new(layout: Layout, data: &[u64], others: &[u64], borders: Borders<'_>) -> Self {
        let journal = (0..u64::from(layout.slots())).map(|slot| layout.record(slot));
        let homes = (0..layout.groups()).map(|group| layout.home(group).unwrap());
        let data = data.iter().map(|block| layout.data(*block).unwrap().0);
        let others = others.iter().copied();
        let blocks = journal.chain(homes).chain(data).chain(others).collect();
        Self {
            layout,
            blocks,
            parts: [parts(borders.records), parts(borders.others)],
            contents: Vec::new(),
            numbers: HashMap::new(),
            known: HashMap::new(),
        }
    }

    pub(crate) fn places(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the superblock is of interest.
    pub(crate) fn has_superblock(&self) -> bool {
        self.blocks.contains(&SUPERBLOCK)
    }

    pub(crate) fn place(&self, block: u64) -> usize {
        self.blocks.iter().position(|b| *b == block).unwrap()
    }

    fn is_record(&self, place: usize) -> bool {
        place < self.layout.slots() as usize
    }

    fn parts(&self, place: usize) -> &[Range<usize>] {
        &self.parts[usize::from(!self.is_record(place))]
    }

    /// The parts of a block in an image.
    pub(crate) fn range(&self, place: usize) -> Range<usize> {
        let records = place.min(self.layout.slots() as usize);
        let start = records * self.parts[0].len() + (place - records) * self.parts[1].len();
        start..start + self.parts(place).len()
    }

    /// The parts of what is written at the start of a block.
    pub(crate) fn split(&mut self, place: usize, bytes: &[u8]) -> Vec<u32> {
        let key = (self.is_record(place), bytes.into());
        if let Some(parts) = self.known.get(&key) {
            return parts.clone();
        }
        let ranges = self.parts(place).to_vec();
        let ranges = ranges.iter().filter(|range| range.end <= bytes.len());
        let parts: Vec<u32> = ranges
            .map(|range| {
                let content: Rc<[u8]> = bytes[range.clone()].into();
                *self.numbers.entry(content.clone()).or_insert_with(|| {
                    self.contents.push(content);
                    self.contents.len() as u32 - 1
                })
            })
            .collect();
        let written = parts.len();
        assert_eq!(self.parts(place)[written - 1].end, bytes.len(), "no border");
        self.known.insert(key, parts.clone());
        parts
    }

    pub(crate) fn join(&self, place: usize, parts: &[u32], block: &mut Block) {
        for (range, number) in self.parts(place).iter().zip(parts) {
            block[range.clone()].copy_from_slice(&self.contents[*number as usize]);
        }
    }
}

/// A write becomes durable.
pub(crate) fn apply(shape: &Shape, medium: &mut Image, write: &Write) {
    let range = shape.range(write.place);
    medium[range][..write.parts.len()].copy_from_slice(&write.parts);
}

/// What a read sees: the newest writes that have ended, else what is durable.
pub(crate) fn visible(shape: &Shape, medium: &Image, writes: &[Write], place: usize) -> Vec<u32> {
    let mut parts = medium[shape.range(place)].to_vec();
    let here = |write: &&Write| write.place == place && write.is_done;
    for write in writes.iter().filter(here) {
        parts[..write.parts.len()].copy_from_slice(&write.parts);
    }
    parts
}

/// All images that a crash can leave.
pub(crate) fn crash_images(shape: &Shape, medium: &Image, writes: &[Write]) -> Vec<Image> {
    let mut images = vec![medium.clone()];
    for (place, range) in (0..shape.places()).map(|place| (place, shape.range(place))) {
        for (part, at) in range.enumerate() {
            let mut choices = vec![medium[at]];
            let here = writes.iter().filter(|write| write.place == place);
            for written in here.filter_map(|write| write.parts.get(part)) {
                if !choices.contains(written) {
                    choices.push(*written);
                }
            }
            let others = choices.split_off(1);
            let known = images.len();
            for other in others {
                for image in 0..known {
                    let mut image = images[image].clone();
                    image[at] = other;
                    images.push(image);
                }
            }
        }
    }
    images
}
