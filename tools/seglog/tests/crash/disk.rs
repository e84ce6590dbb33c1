// SPDX-License-Identifier: GPL-2.0

//! The members: what is durable, what is in their caches, and what may be there after a crash.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::Range,
    rc::Rc, //
};

use seglog::{
    batch::HEAD_BYTES,
    layout::{
        Layout,
        AREAS,
        SLOTS,
        SLOT_BYTES, //
    },
    members::MEMBERS,
    superblock::SUPERBLOCK_BYTES, //
};

/// The number of a content; 0 is zeroes of any length.
pub(crate) type Content = u32;

/// All contents of parts.
#[derive(Default)]
struct Contents {
    bytes: Vec<Rc<[u8]>>,
    numbers: HashMap<Rc<[u8]>, Content>,
}

thread_local! {
    static CONTENTS: RefCell<Contents> = RefCell::default();
}

fn number_of(bytes: &[u8]) -> Content {
    if bytes.iter().all(|byte| *byte == 0) {
        return 0;
    }
    CONTENTS.with_borrow_mut(|contents| {
        if let Some(number) = contents.numbers.get(bytes) {
            return *number;
        }
        let bytes: Rc<[u8]> = bytes.into();
        contents.bytes.push(bytes.clone());
        let number = contents.bytes.len() as Content;
        contents.numbers.insert(bytes, number);
        number
    })
}

fn copy_out(number: Content, to: &mut [u8]) {
    match number {
        0 => to.fill(0),
        _ => CONTENTS
            .with_borrow(|contents| to.copy_from_slice(&contents.bytes[number as usize - 1])),
    }
}

/// The places of a member, each of two parts, of which a write that is cut off leaves any: both
/// halves of a slot or page; the head of a unit, and its body.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    /// Writes of a place are torn.
    pub(crate) torn: bool,
}

impl Shape {
    pub(crate) fn parts(&self) -> usize {
        let parts = self.layout.parts();
        let units = parts.segments as usize * parts.segment_units as usize;
        (self.first_unit() + units) * 2
    }

    /// The place of the first unit: slots and pages are before it.
    fn first_unit(&self) -> usize {
        usize::from(SLOTS) + usize::from(AREAS) * self.layout.pages() as usize
    }

    /// The parts from a byte on, and the bytes of each.
    fn range(&self, at: u64, bytes: usize) -> Vec<(usize, Range<usize>)> {
        if at < u64::from(SLOTS) * SLOT_BYTES {
            assert_eq!((at % SLOT_BYTES, bytes), (0, SUPERBLOCK_BYTES));
            let first = (at / SLOT_BYTES) as usize * 2;
            let half = SUPERBLOCK_BYTES / 2;
            return vec![(first, 0..half), (first + 1, half..bytes)];
        }
        let pages = self.layout.page(0, 0);
        if at < self.layout.segment(0) {
            let page_bytes = self.layout.parts().page_bytes as usize;
            let page = (at - pages) as usize / page_bytes;
            assert_eq!(((at - pages) as usize % page_bytes, bytes), (0, page_bytes));
            let first = (usize::from(SLOTS) + page) * 2;
            return vec![(first, 0..bytes / 2), (first + 1, bytes / 2..bytes)];
        }
        let unit_bytes = self.layout.unit_bytes();
        let unit = (at - self.layout.segment(0)) as usize / unit_bytes;
        assert_eq!((at - self.layout.segment(0)) as usize % unit_bytes, 0);
        assert_eq!(bytes % unit_bytes, 0);
        let each = (0..bytes / unit_bytes).flat_map(|n| {
            let part = (self.first_unit() + unit + n) * 2;
            let (start, end) = (n * unit_bytes, (n + 1) * unit_bytes);
            let border = start + HEAD_BYTES;
            [(part, start..border), (part + 1, border..end)]
        });
        each.collect()
    }
}

impl Shape {
    /// The places of some bytes.
    pub(crate) fn places(&self, at: u64, bytes: usize) -> impl Iterator<Item = usize> + Clone {
        let parts = self.range(at, bytes);
        let first = parts[0].0 / 2;
        first..first + parts.len() / 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    InFlight,
    /// Ended: reads see it.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write {
    place: u16,
    /// Contents of both parts.
    contents: [Content; 2],
    io: u32,
    state: State,
    /// The flushes in flight that cover it.
    flushes: Vec<u32>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Disk {
    medium: Vec<Content>,
    /// Writes that may not be durable.
    writes: Vec<Write>,
}

impl Disk {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self {
            medium: vec![0; shape.parts()],
            writes: Vec::new(),
        }
    }

    /// Begins a write; `io` names it.
    pub(crate) fn begin(&mut self, shape: &Shape, at: u64, bytes: &[u8], io: u32) {
        for pair in shape.range(at, bytes.len()).chunks(2) {
            let [(part, first), (_, second)] = pair else {
                panic!("half a place");
            };
            self.writes.push(Write {
                place: (part / 2) as u16,
                contents: [first, second].map(|range| number_of(&bytes[range.clone()])),
                io,
                state: State::InFlight,
                flushes: Vec::new(),
            });
        }
    }

    /// A write has ended.
    pub(crate) fn end(&mut self, io: u32, fua: bool) {
        for write in &mut self.writes {
            if write.io == io && write.state == State::InFlight {
                write.state = State::Done;
                write.flushes.extend(fua.then_some(io));
                write.io = 0;
            }
        }
        if fua {
            self.end_flush(io);
        }
    }

    pub(crate) fn begin_flush(&mut self, io: u32) {
        for write in &mut self.writes {
            if write.state == State::Done {
                write.flushes.push(io);
            }
        }
    }

    pub(crate) fn end_flush(&mut self, io: u32) {
        let medium = &mut self.medium;
        self.writes.retain(|write| {
            let is_durable = write.flushes.contains(&io);
            if is_durable {
                let first = usize::from(write.place) * 2;
                medium[first..first + 2].copy_from_slice(&write.contents);
            }
            !is_durable
        });
    }

    /// Damages a slot, of which nothing is in flight.
    pub(crate) fn spoil(&mut self, slot: u8) {
        let half = [0xa5; SUPERBLOCK_BYTES / 2];
        self.medium[usize::from(slot) * 2] = number_of(&half);
    }

    /// Ends all that was on its way when the member failed: it has arrived.
    pub(crate) fn arrive(&mut self) {
        for write in &mut self.writes {
            write.state = State::Done;
            write.io = 0;
        }
    }

    /// The cache is lost, all of it.
    pub(crate) fn lose(&mut self) {
        self.writes.retain(|write| write.state == State::InFlight);
    }

    pub(crate) fn read(&self, shape: &Shape, at: u64, to: &mut [u8]) {
        for (part, range) in shape.range(at, to.len()) {
            let here = |write: &&Write| {
                usize::from(write.place) == part / 2 && write.state != State::InFlight
            };
            let cached = self.writes.iter().rev().find(here);
            let cached = cached.map(|write| write.contents[part % 2]);
            copy_out(cached.unwrap_or(self.medium[part]), &mut to[range]);
        }
    }

    /// Returns, for each run of parts that may have one of several contents after a crash, the
    /// first part, and all contents.
    fn choices(&self, torn: bool) -> Vec<(usize, Vec<Vec<Content>>)> {
        let mut choices: Vec<(usize, Vec<Vec<Content>>)> = Vec::new();
        for write in &self.writes {
            let length = if torn { 1 } else { 2 };
            for (n, contents) in write.contents.chunks(length).enumerate() {
                let part = usize::from(write.place) * 2 + n * length;
                let known = choices.iter().position(|(other, _)| *other == part);
                let known = known.unwrap_or_else(|| {
                    choices.push((part, vec![self.medium[part..part + length].to_vec()]));
                    choices.len() - 1
                });
                if !choices[known].1.iter().any(|other| other == contents) {
                    choices[known].1.push(contents.to_vec());
                }
            }
        }
        choices.retain(|(_, contents)| contents.len() > 1);
        choices
    }

    /// Returns what a crash leaves if `pick` chooses among so many contents.
    pub(crate) fn crashed(&self, torn: bool, pick: &mut impl FnMut(usize) -> usize) -> Self {
        let mut medium = self.medium.clone();
        for (part, contents) in self.choices(torn) {
            let content = &contents[pick(contents.len())];
            medium[part..part + content.len()].copy_from_slice(content);
        }
        Self {
            medium,
            writes: Vec::new(),
        }
    }
}

/// The members of an array.
pub(crate) type Disks = [Disk; MEMBERS];

/// All that a crash can leave.
pub(crate) fn crash_images(disks: &Disks, torn: bool) -> Vec<Disks> {
    let choices: Vec<usize> = {
        let each = disks.iter().flat_map(|disk| disk.choices(torn));
        each.map(|(_, contents)| contents.len()).collect()
    };
    let mut counter = vec![0; choices.len()];
    let mut images = Vec::new();
    loop {
        let mut at = 0;
        let mut pick = |_| {
            at += 1;
            counter[at - 1]
        };
        images.push([0, 1, 2].map(|member: usize| disks[member].crashed(torn, &mut pick)));
        let Some(next) = (0..choices.len()).find(|n| counter[*n] + 1 < choices[*n]) else {
            return images;
        };
        counter[..next].fill(0);
        counter[next] += 1;
    }
}
