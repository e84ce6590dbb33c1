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

/// A checksum that is faster than a CRC, as contents are few and differ.
#[derive(Clone, Copy)]
pub(crate) struct Fast;

impl Checksum for Fast {
    fn crc64(&self, bytes: &[u8]) -> u64 {
        let mut sum = 0x9e37_79b9_7f4a_7c15u64;
        for word in bytes.chunks(8) {
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
    pub(crate) parts: Vec<u32>,
    /// It has ended, so that reads see it.
    pub(crate) is_done: bool,
}

/// The blocks of interest, the parts that a write can be torn into, and all contents of parts.
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    blocks: Vec<u64>,
    parts: Vec<Range<usize>>,
    contents: Vec<Rc<[u8]>>,
    numbers: HashMap<Rc<[u8]>, u32>,
    whole: HashMap<Box<Block>, Vec<u32>>,
}

impl Shape {
    /// `borders`: the bytes at which a write can be torn. `others`: blocks beside journal, PI
    /// blocks and data.
    pub(crate) fn new(layout: Layout, data: &[u64], others: &[u64], borders: &[usize]) -> Self {
        let journal = (0..u64::from(layout.slots())).map(|slot| layout.record(slot));
        let homes = (0..layout.groups()).map(|group| layout.home(group).unwrap());
        let data = data.iter().map(|block| layout.data(*block).unwrap().0);
        let others = others.iter().copied();
        let blocks = journal.chain(homes).chain(data).chain(others).collect();
        let ends = borders.iter().copied().chain([BLOCK_BYTES]);
        let starts = [0].into_iter().chain(borders.iter().copied());
        Self {
            layout,
            blocks,
            parts: starts.zip(ends).map(|(start, end)| start..end).collect(),
            contents: Vec::new(),
            numbers: HashMap::new(),
            whole: HashMap::new(),
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

    pub(crate) fn range(&self, place: usize) -> Range<usize> {
        place * self.parts.len()..(place + 1) * self.parts.len()
    }

    pub(crate) fn split(&mut self, block: &Block) -> Vec<u32> {
        if let Some(parts) = self.whole.get(block) {
            return parts.clone();
        }
        let parts: Vec<u32> = self
            .parts
            .iter()
            .map(|range| {
                let content: Rc<[u8]> = block[range.clone()].into();
                *self.numbers.entry(content.clone()).or_insert_with(|| {
                    self.contents.push(content);
                    self.contents.len() as u32 - 1
                })
            })
            .collect();
        self.whole.insert(Box::new(*block), parts.clone());
        parts
    }

    pub(crate) fn join(&self, parts: &[u32], block: &mut Block) {
        for (range, number) in self.parts.iter().zip(parts) {
            block[range.clone()].copy_from_slice(&self.contents[*number as usize]);
        }
    }
}

/// What a read sees: the newest write that has ended, else what is durable.
pub(crate) fn visible(shape: &Shape, medium: &Image, writes: &[Write], place: usize) -> Vec<u32> {
    let newest = writes
        .iter()
        .rfind(|write| write.place == place && write.is_done);
    newest.map_or_else(
        || medium[shape.range(place)].to_vec(),
        |write| write.parts.clone(),
    )
}

/// All images that a crash can leave.
pub(crate) fn crash_images(shape: &Shape, medium: &Image, writes: &[Write]) -> Vec<Image> {
    let mut images = vec![medium.clone()];
    for (place, start) in (0..shape.places()).map(|place| (place, shape.range(place).start)) {
        for part in 0..shape.parts.len() {
            let mut choices = vec![medium[start + part]];
            for write in writes.iter().filter(|write| write.place == place) {
                if !choices.contains(&write.parts[part]) {
                    choices.push(write.parts[part]);
                }
            }
            let others = choices.split_off(1);
            let known = images.len();
            for other in others {
                for image in 0..known {
                    let mut image = images[image].clone();
                    image[start + part] = other;
                    images.push(image);
                }
            }
        }
    }
    images
}
