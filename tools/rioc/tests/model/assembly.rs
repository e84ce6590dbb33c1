// SPDX-License-Identifier: GPL-2.0

//! The assembly of a log of `seglog` on one device, whose table is of entries of slots.

use rioc::proto::{
    body::{
        self,
        TAGGED_BYTES, //
    },
    entry::{
        self,
        Entry,
        ENTRY_BYTES, //
    },
    slot::Slot, //
};
use seglog::{
    batch::HEAD_BYTES,
    layout::{
        Layout,
        Parts, //
    },
    members::Members,
    record::Malformed,
    recovery::{
        Opened,
        Recovery, //
    },
    segments::{
        Segment,
        Segments, //
    },
    table::{
        note_batch,
        Table, //
    }, //
};

use crate::{
    disk::Disk,
    log::Crc,
    random::Random, //
};

pub(crate) const UNIT_BYTES: u32 = 512;
/// The table has two of them.
pub(crate) const PAGE_BYTES: u32 = 2048;
pub(crate) const SEGMENT_UNITS: u32 = 150;
pub(crate) const SEGMENTS: u32 = 14;
pub(crate) const WORDS: usize = ENTRY_BYTES / 8;
pub(crate) const OWN: Members = Members::of(0);

impl seglog::Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

/// The words of the table: of entries, then of segments.
pub(crate) struct Words {
    pub(crate) entries: Vec<Entry>,
    segments: Vec<u64>,
}

impl Words {
    fn new(slots: usize) -> Self {
        Self {
            entries: vec![[0; ENTRY_BYTES]; slots],
            segments: vec![0; SEGMENTS as usize],
        }
    }
}

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        let (slot, word) = (index as usize / WORDS, index as usize % WORDS * 8);
        match self.entries.get(slot) {
            Some(entry) => u64::from_le_bytes(entry[word..word + 8].try_into().unwrap()),
            None => self.segments[index as usize - self.entries.len() * WORDS],
        }
    }

    fn set(&mut self, index: u64, new: u64) {
        let (slot, word) = (index as usize / WORDS, index as usize % WORDS * 8);
        let entries = self.entries.len() * WORDS;
        match self.entries.get_mut(slot) {
            Some(entry) => entry[word..word + 8].copy_from_slice(&new.to_le_bytes()),
            None => self.segments[index as usize - entries] = new,
        }
    }
}

pub(crate) fn layout(slots: usize) -> Layout {
    let parts = Parts {
        unit_bytes: UNIT_BYTES,
        segment_units: SEGMENT_UNITS,
        segments: SEGMENTS,
        page_bytes: PAGE_BYTES,
        entries: (slots * WORDS) as u64,
    };
    Layout::single(parts).unwrap()
}

/// What an assembly gives.
pub(crate) type Assembled = (Opened, Segments<Vec<Segment>>, Words, u64);

pub(crate) fn assemble(
    disk: &mut Disk,
    slots: usize,
    random: &mut Random,
) -> Result<Assembled, String> {
    let says = |fault: seglog::fault::Fault<&'static str>| fault.to_string();
    let mut column = vec![0; 120 << 10];
    let columns = [&mut column[..], &mut [], &mut []];
    let recovery = Recovery::examine(disk, (OWN, false), columns, &Crc);
    let mut recovery = recovery.map_err(says)?;
    let (layout, mut words) = (*recovery.layout(), Words::new(slots));
    assert!(layout.is_single());
    let walked = recovery.walk_by(&mut words, |words: &mut Words, _, column| {
        let all = body::assignments(&column[HEAD_BYTES..]);
        for (slot, entry) in all.map_err(|_| Malformed)? {
            *words.entries.get_mut(slot as usize).ok_or(Malformed)? = *entry;
        }
        Ok(())
    });
    walked.map_err(says)?;
    let memory = vec![Segment::default(); SEGMENTS as usize];
    let mut segments = Segments::known(memory, &words, &layout).unwrap();
    for entry in &words.entries {
        if let Slot::Extent(extent) = entry::slot(entry).unwrap() {
            let bytes = u64::from(extent.blocks) * TAGGED_BYTES as u64;
            assert!(segments.add(segment_of(&layout, extent.stored.place), bytes));
        }
    }
    let start = *recovery.start();
    let end = *recovery.opens_at();
    let free = segments
        .free_behind(&end, (&start, &layout))
        .expect("a free segment");
    recovery.commit(random.next() | 1).map_err(says)?;
    let opened = recovery.open(random.next() | 1, free).map_err(says)?;
    let first = &opened.first;
    note_batch(&mut words, first, first.live, &layout);
    let of_use = (first.segment_sequence, first.sequence);
    segments.begin(first.place.segment, of_use, first.live);
    segments.acknowledge(first.place.segment, first.sequence);
    Ok((opened, segments, words, end.sequence - 1))
}

pub(crate) fn segment_of(layout: &Layout, place: u64) -> u32 {
    ((place - layout.segment(0)) / layout.segment_bytes()) as u32
}
