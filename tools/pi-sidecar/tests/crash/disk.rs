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

    /// Returns the part of `bytes` that the CRC covers: all of them, but for a mistake that leaves
    /// some out.
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

/// The number of the content of each part of each block of interest.
pub(crate) type Image = Vec<u32>;

/// A write that may not be durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    pub(crate) place: usize,
    /// The first part of the block that is written.
    pub(crate) first: usize,
    /// All parts of the block, or some in a row.
    pub(crate) parts: Vec<u32>,
    /// The write has ended, so that reads see it.
    pub(crate) is_done: bool,
}

impl Write {
    /// The parts of the block that are written.
    fn range(&self) -> Range<usize> {
        self.first..self.first + self.parts.len()
    }
}

/// Kinds of blocks, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Record,
    PiBlock,
    Other,
}

/// The bytes at which a write of a PI block can be torn: the borders of the sectors that have
/// tuples here.
const PI_BLOCK_BORDERS: &[usize] = &[512, 1024, 3584];

/// The bytes at which a write of other blocks can be torn.
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

/// A content that was written: the kind of its block, the byte from which on it is, and its bytes.
type Known = (Kind, usize, Box<[u8]>);

/// The blocks of interest, the parts that a write can be torn into, and all contents of parts.
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    blocks: Vec<u64>,
    /// The parts of the slots of the journal, which come first, of the PI blocks, and of the other
    /// blocks.
    parts: [Vec<Range<usize>>; 3],
    contents: Vec<Rc<[u8]>>,
    numbers: HashMap<Rc<[u8]>, u32>,
    known: HashMap<Known, Vec<u32>>,
}

impl Shape {
    /// `others`: blocks beside journal, PI blocks and data.
    pub(crate) fn new(layout: Layout, data: &[u64], others: &[u64], borders: Borders<'_>) -> Self {
        let journal = (0..u64::from(layout.slots())).map(|slot| layout.record(slot));
        let pi_blocks = (0..layout.groups()).map(|group| layout.pi_block(group).unwrap());
        let data = data.iter().map(|block| layout.data(*block).unwrap().0);
        let others = others.iter().copied();
        let blocks = journal.chain(pi_blocks).chain(data).chain(others).collect();
        Self {
            layout,
            blocks,
            parts: [
                parts(borders.records),
                parts(PI_BLOCK_BORDERS),
                parts(borders.others),
            ],
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

    /// Returns the numbers of blocks of each kind.
    fn counts(&self) -> [usize; 3] {
        let records = self.layout.slots() as usize;
        let pi_blocks = self.layout.groups() as usize;
        [records, pi_blocks, self.places() - records - pi_blocks]
    }

    pub(crate) fn kind(&self, place: usize) -> Kind {
        let [records, pi_blocks, _] = self.counts();
        match place {
            _ if place < records => Kind::Record,
            _ if place < records + pi_blocks => Kind::PiBlock,
            _ => Kind::Other,
        }
    }

    fn parts(&self, place: usize) -> &[Range<usize>] {
        &self.parts[self.kind(place) as usize]
    }

    /// The parts of a block in an image.
    pub(crate) fn range(&self, place: usize) -> Range<usize> {
        let (mut start, mut left) = (0, place);
        for (count, parts) in self.counts().into_iter().zip(&self.parts) {
            start += left.min(count) * parts.len();
            left -= left.min(count);
        }
        start..start + self.parts(place).len()
    }

    /// The first part of a block that begins at a byte.
    pub(crate) fn first(&self, place: usize, start: usize) -> usize {
        let mut parts = self.parts(place).iter();
        let first = parts.position(|range| range.start == start);
        first.unwrap_or_else(|| panic!("no border at {start}"))
    }

    /// The parts of what is written from the start of a block on.
    pub(crate) fn split(&mut self, place: usize, bytes: &[u8]) -> Vec<u32> {
        self.split_from(place, 0, bytes)
    }

    /// The parts of what is written from a byte of a block on.
    pub(crate) fn split_from(&mut self, place: usize, start: usize, bytes: &[u8]) -> Vec<u32> {
        let key = (self.kind(place), start, bytes.into());
        if let Some(parts) = self.known.get(&key) {
            return parts.clone();
        }
        let end = start + bytes.len();
        let ranges = self.parts(place).to_vec();
        let ranges = ranges.iter().filter(|r| start <= r.start && r.end <= end);
        let parts: Vec<u32> = ranges
            .map(|range| {
                let content: Rc<[u8]> = bytes[range.start - start..range.end - start].into();
                *self.numbers.entry(content.clone()).or_insert_with(|| {
                    self.contents.push(content);
                    self.contents.len() as u32 - 1
                })
            })
            .collect();
        let last = self.first(place, start) + parts.len() - 1;
        assert_eq!(self.parts(place)[last].end, end, "no border");
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
    medium[range][write.range()].copy_from_slice(&write.parts);
}

/// A bit of the first part of a block changes on the medium.
pub(crate) fn change(shape: &mut Shape, medium: &mut Image, place: usize) {
    let range = shape.range(place);
    let mut block = [0; BLOCK_BYTES];
    shape.join(place, &medium[range.clone()], &mut block);
    // In a record that is of its number, in a PI block of the second tuple.
    block[TINY_BYTES / 4 + 1] ^= 1;
    block[1] ^= 1;
    let parts = shape.split(place, &block);
    medium[range].copy_from_slice(&parts);
}

/// Returns what a read sees: the newest writes that have ended, else what is durable.
pub(crate) fn visible(shape: &Shape, medium: &Image, writes: &[Write], place: usize) -> Vec<u32> {
    let mut parts = medium[shape.range(place)].to_vec();
    let here = |write: &&Write| write.place == place && write.is_done;
    for write in writes.iter().filter(here) {
        parts[write.range()].copy_from_slice(&write.parts);
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
            for written in here.filter_map(|write| write.parts.get(part.checked_sub(write.first)?))
            {
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
