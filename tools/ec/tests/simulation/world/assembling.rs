// SPDX-License-Identifier: GPL-2.0

//! Arrays are made, and assembled after a power failure.

use std::fmt;

use rnbd_ec::proto::{
    array::{
        Array,
        PACKED, //
    },
    geometry::{
        self,
        Shape, //
    },
    packing::{
        Columns,
        Packed, //
    },
};
use seglog::{
    devices::Devices,
    fault::Fault,
    layout::{
        Layout,
        COLUMN_BYTES_MAX,
        SLOTS, //
    },
    members::Members,
    recovery::Recovery,
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        newer,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    table::Table,
    ArrayTag, //
};

use super::{
    Counted,
    Crc,
    Life,
    OnHost, //
};
use crate::{
    history::History,
    member::Member,
    random::Random,
    Setting, //
};

/// The bytes of each member.
const BYTES: u64 = 10 << 20;

pub(crate) struct Words(Vec<u64>);

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        self.0.get(index as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, index: u64, word: u64) {
        self.0[index as usize] = word;
    }
}

/// The members, of which one IO after the other is done.
pub(crate) struct OneByOne<'a>(pub(crate) &'a mut [Member; 3]);

impl Devices for OneByOne<'_> {
    type Error = &'static str;

    fn bytes(&self, member: usize) -> u64 {
        self.0[member].bytes()
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        if !self.0[member].can_read(at, to.len()) {
            return Err("it is dead, or has a bad sector");
        }
        self.0[member].read(at, to);
        Ok(())
    }

    fn write(
        &mut self,
        member: usize,
        at: u64,
        from: &[u8],
        fua: bool,
    ) -> Result<(), &'static str> {
        self.0[member].write(at, from, fua);
        Ok(())
    }

    fn flush(&mut self, member: usize) -> Result<(), &'static str> {
        self.0[member].flush();
        Ok(())
    }
}

/// Assembles an array of the members that are there, or says why it is refused.
pub(crate) fn assemble<D: Devices<Error: fmt::Display>>(
    devices: &mut D,
    present: Members,
    random: &mut Random,
) -> Result<Array<OnHost>, String> {
    let says = |fault: Fault<D::Error>| fault.to_string();
    let mut memory = [(); 3].map(|()| vec![0; COLUMN_BYTES_MAX]);
    let [one, two, three] = &mut memory;
    let columns = [&mut one[..], &mut two[..], &mut three[..]];
    let mut recovery = Recovery::examine(devices, (present, false), columns, &Crc).map_err(says)?;
    let layout = *recovery.layout();
    let tag = recovery.tag();
    let mut words = Words(vec![0; layout.words() as usize]);
    recovery.walk(&mut words).map_err(says)?;
    let memory = vec![Segment::default(); layout.parts().segments as usize];
    let segments = Segments::count(Counted(memory), &words, &layout);
    let mut segments = segments.map_err(|_| "the table is malformed")?;
    let start = *recovery.start();
    let free = segments.free_behind(recovery.opens_at(), (&start, &layout));
    let free = free.ok_or("no segment is free")?;
    let id = random.next() | 1;
    recovery.commit(id).map_err(says)?;
    let opened = recovery.open(id, free).map_err(says)?;
    let first = &opened.first;
    seglog::table::note_batch(&mut words, first, first.live, &layout);
    segments.begin(
        first.place.segment,
        (first.segment_sequence, first.sequence),
        first.live,
    );
    segments.acknowledge(first.place.segment, first.sequence);
    let packed = vec![Packed::default(); PACKED];
    Ok(Array::new((layout, tag), opened, (words, segments, packed)))
}

impl Life {
    /// Makes a new array.
    pub(crate) fn new(seed: u64, setting: Setting) -> Self {
        let mut random = Random::new(seed + 1);
        let mut members = [(); 3].map(|()| Member::new(BYTES));
        let block_bytes = if random.below(2) == 0 { 512 } else { 4096 };
        let shape = Shape {
            bytes: BYTES,
            logical_block_bytes: block_bytes,
            physical_block_bytes: block_bytes,
        };
        let mut layout = geometry::layout(&[shape; 3], None).unwrap();
        if setting.overcommits {
            let size = layout.parts().entries * 4096 * 3 / 2;
            layout = geometry::layout(&[shape; 3], Some(size)).unwrap();
        }
        let (uuid, tag) = ([7; 16], ArrayTag(random.next()));
        let epoch = random.next() | 1;
        for (number, member) in members.iter_mut().enumerate() {
            let superblock = Superblock::new((uuid, tag), number, layout, epoch);
            let at = Layout::slot(superblock.slot());
            member.write(at, &superblock.bytes(&Crc), true);
        }
        let devices = &mut OneByOne(&mut members);
        let array = assemble(devices, Members::ALL, &mut random).unwrap();
        let column = || vec![0; COLUMN_BYTES_MAX];
        Self {
            setting,
            seed,
            random,
            members,
            history: History::new(layout.parts().entries as usize),
            array,
            columns: Columns {
                columns: [column(), column(), column()],
            },
            waiting: Default::default(),
            slots: Default::default(),
            flushes: 0,
            reads: Vec::new(),
            collecting: None,
            versions: 0,
            acknowledged: 0,
            refused: 0,
            step: 0,
            shelf: None,
            log_end: 0,
            unreadable: 0,
        }
    }

    /// Power fails, and the array is assembled again: what was flushed is there.
    pub(crate) fn check_power_failure(&mut self) {
        for member in &mut self.members {
            member.lose_power(&mut self.random);
            member.is_dead = false;
        }
        // One may be missing if all of them say that all are in sync.
        let mut present = Members::ALL;
        let epochs = [0, 1, 2].map(|member| self.superblock(member).epoch);
        let are_in_sync = epochs
            .iter()
            .all(|e| *e == epochs[0] && e.failed.is_empty());
        if are_in_sync && self.random.below(4) == 0 {
            present = present.minus(Members::of(self.random.below(3) as usize));
        }
        self.array = self.assemble_again(present, are_in_sync);
        self.waiting.clear();
        self.slots = Default::default();
        self.flushes = 0;
        self.reads.clear();
        self.collecting = None;
        let label = self.label();
        for block in 0..self.history.blocks.len() {
            let version = match self.read_now(block as u64) {
                Ok(version) => version,
                Err(why) => {
                    assert!(
                        self.may_be_lost(block as u64),
                        "{label}: block {block}: {why}"
                    );
                    continue;
                }
            };
            let found = self.history.found(block, version);
            found.unwrap_or_else(|why| panic!("{label}: {why}"));
        }
    }

    /// Makes a device ready to be a member again, or a new one to take its place.
    pub(crate) fn prepare_return(&mut self, member: usize, is_new: bool) {
        assert!(self.members[member].in_flight.is_empty());
        let old = self.shelf.take().filter(|(of, _)| is_new && *of == member);
        if let Some((_, mut old)) = old {
            old.is_dead = false;
            self.members[member] = old;
        } else if is_new {
            let id = self.random.next() | 1;
            let own = self.array.replacement(member, (id, 0)).unwrap();
            let mut device = Member::new(BYTES);
            device.write(Layout::slot(own.slot()), &own.bytes(&Crc), true);
            let old = std::mem::replace(&mut self.members[member], device);
            self.shelf = Some((member, old));
        }
        self.members[member].flush();
    }

    /// Reads the superblock of a member.
    pub(crate) fn superblock(&self, member: usize) -> Superblock {
        let mut slots = [[0; SUPERBLOCK_BYTES]; 2];
        for (slot, to) in (0..SLOTS).zip(&mut slots) {
            self.members[member].read(Layout::slot(slot), to);
        }
        let parsed = |slot: u8| Superblock::parse(&slots[usize::from(slot)], slot, &Crc);
        newer(parsed(0), parsed(1)).unwrap()
    }
}
