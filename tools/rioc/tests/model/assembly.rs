// SPDX-License-Identifier: GPL-2.0

//! The assembly of a log on one device, as a server carries it out.

use rioc::proto::{
    entry::ENTRY_BYTES,
    index::Index,
    log::{
        self,
        LogMemory,
        Logged,
        Table,
        COLUMNS,
        SLOTS_MAX, //
    },
    slot::{
        Slot,
        NONE, //
    },
};
use seglog::{
    devices::Devices,
    layout::{
        Layout,
        Parts, //
    },
    members::Members,
    recovery::Recovery,
    segments::Segment,
    superblock::Superblock,
    ArrayTag, //
};

use crate::{
    disk::{
        Crc,
        Disk, //
    },
    random::Random,
};

pub(crate) const PAGE_BYTES: usize = 2048;
const UNIT_BYTES: u32 = 512;
const SEGMENT_UNITS: u32 = 100;
const SEGMENTS: u32 = 15;
const COLUMN_BYTES: usize = 120 << 10;
const OWN: Members = Members::of(0);

/// The memory of a log.
pub(crate) struct Heap;

impl LogMemory for Heap {
    type Column = Vec<u8>;
    type Slots = Vec<u32>;
    type Segments = Vec<Segment>;
    type Uses = Vec<u64>;
}

pub(crate) type Memory = Index<Vec<Slot>, Vec<u32>>;

/// Formats a device for so many slots.
pub(crate) fn format(slots: usize, random: &mut Random) -> Disk {
    let parts = Parts {
        unit_bytes: UNIT_BYTES,
        segment_units: SEGMENT_UNITS,
        segments: SEGMENTS,
        page_bytes: PAGE_BYTES as u32,
        entries: (slots * ENTRY_BYTES / 8) as u64,
    };
    let layout = Layout::single(parts).unwrap();
    let mut disk = Disk::new(layout.end_bytes() as usize);
    let (mut uuid, tag) = ([3; 16], random.next());
    uuid[..8].copy_from_slice(&tag.to_le_bytes());
    let of_array = (uuid, ArrayTag(tag));
    let first = Superblock::new(of_array, 0, layout, random.next() | 1);
    disk.write(0, Layout::slot(0), &first.bytes(&Crc), true)
        .unwrap();
    disk
}

/// Assembles the log; returns the last batch that it has as well.
pub(crate) fn assemble(
    disk: &mut Disk,
    has_cache: bool,
    random: &mut Random,
) -> Result<(Memory, Logged<Heap>, u64), String> {
    let says = |fault: seglog::fault::Fault<&'static str>| fault.to_string();
    let mut column = vec![0; COLUMN_BYTES];
    let columns = [&mut column[..], &mut [], &mut []];
    let recovery = Recovery::examine(disk, (OWN, false), columns, &Crc);
    let mut recovery = recovery.map_err(says)?;
    let layout = *recovery.layout();
    let slots = layout.parts().entries as usize * 8 / ENTRY_BYTES;
    let mut table = Table {
        entries: vec![[0; ENTRY_BYTES]; slots],
        uses: vec![0; SEGMENTS as usize],
    };
    log::walk(&mut recovery, &mut table).map_err(says)?;
    let mut memory = vec![Slot::Free(NONE); slots];
    log::slots(&table.entries, &mut memory).unwrap();
    let key = [random.next(), random.next()];
    let index = Index::restore(memory, vec![NONE; 5], key).unwrap();
    let segments = vec![Segment::default(); SEGMENTS as usize];
    let segments = log::segments(segments, &table, &index, &layout).unwrap();
    let (start, end) = (*recovery.start(), *recovery.opens_at());
    let free = segments.free_behind(&end, (&start, &layout));
    let free = free.expect("a free segment");
    recovery.commit(random.next() | 1).map_err(says)?;
    let opened = recovery.open(random.next() | 1, free).map_err(says)?;
    let superblock = opened.superblocks[0].unwrap();
    let spare = [(); COLUMNS].map(|()| Some(vec![0x55; COLUMN_BYTES]));
    let memory = (spare, vec![0; SLOTS_MAX]);
    let found = (segments, table.uses);
    let logged = Logged::new((opened, superblock), found, memory, has_cache);
    Ok((index, logged, end.sequence - 1))
}
