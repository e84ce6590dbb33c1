// SPDX-License-Identifier: GPL-2.0

//! An assembly of members, over the code that drivers run, with all states in which it can be cut
//! off.

use std::{
    cell::Cell,
    collections::BTreeSet,
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    },
};

use seglog::{
    devices::Devices,
    epoch::Epoch,
    fault::Fault,
    layout::{
        Layout,
        COLUMN_BYTES_MAX,
        SLOTS,
        SLOT_BYTES, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    record::{
        Entry,
        Record,
        Spot, //
    },
    recovery::{
        Opened,
        Recovery, //
    },
    segments::{
        Segment,
        Segments, //
    },
    source::{
        self,
        Source, //
    },
    superblock::{
        newer,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    table::{
        note_batch,
        SegmentUse,
        Table, //
    },
    Checksum, //
};

use crate::{
    disk::{
        Disk,
        Disks,
        Shape, //
    },
    setting::{
        version_of,
        Version,
        Versions,
        BLOCKS, //
    },
    Mistake,
};

/// A checksum that is faster than a CRC, as contents are few and differ.
#[derive(Clone, Copy)]
pub(crate) struct Fast(pub(crate) Mistake);

impl Checksum for Fast {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        let is_body = bytes.len() % 128 == 32 || bytes.len() == 160;
        if self.0 == Mistake::BodyCrcLeftOut && is_body {
            return 1;
        }
        let mut sum = 0x9e37_79b9_7f4a_7c15u64 ^ bytes.len() as u64;
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            sum = (sum.rotate_left(5) ^ u64::from_le_bytes(padded))
                .wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        (sum ^ (sum >> 32)) as u32
    }
}

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    // No identifier is 0.
    hasher.finish() | 1
}

/// Steps of a recovery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Commit,
    Open,
}

/// The members while an array is assembled; the states that a crash meets are kept.
struct Recorder<'a> {
    shape: &'a Shape,
    disks: Disks,
    mistake: Mistake,
    phase: &'a Cell<Phase>,
    /// Superblocks as a mistake changes them.
    superblocks: [Option<Superblock>; MEMBERS],
    states: Option<Vec<Disks>>,
    present: Members,
    errors: Errors,
}

/// Places that cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errors {
    /// Places of members, until they are written again.
    pub(crate) bad: BTreeSet<(usize, usize)>,
    /// Places that were read.
    pub(crate) seen: BTreeSet<(usize, usize)>,
}

/// A member cannot be read there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Returns where a mistake puts what is written at a byte.
fn place(shape: &Shape, at: u64, mistake: Mistake) -> u64 {
    let second = shape.layout.page(1, 0);
    match mistake {
        Mistake::OneSlot if at == SLOT_BYTES => 0,
        Mistake::OneArea if (second..shape.layout.segment(0)).contains(&at) => {
            at - second + shape.layout.page(0, 0)
        }
        _ => at,
    }
}

impl Devices for Recorder<'_> {
    type Error = Unreadable;

    fn bytes(&self, _: usize) -> u64 {
        self.shape.layout.end_bytes()
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Unreadable> {
        assert!(self.present.contains(member));
        let places = self.shape.places(at, to.len());
        let mut each = places.map(|place| (member, place));
        self.errors.seen.extend(each.clone());
        if each.any(|place| self.errors.bad.contains(&place)) {
            return Err(Unreadable);
        }
        let changed = self.superblocks[member].filter(|_| at < u64::from(SLOTS) * SLOT_BYTES);
        match changed {
            Some(superblock) => {
                let is_newer = Layout::slot(superblock.slot()) == at;
                let mut here = superblock;
                if !is_newer {
                    here.writes = superblock.writes.saturating_sub(1);
                }
                // One that was written once has nothing in the other slot.
                if is_newer || superblock.writes > 0 {
                    to.copy_from_slice(&here.bytes(&Fast(self.mistake)));
                } else {
                    to.fill(0);
                }
            }
            None => self.disks[member].read(self.shape, place(self.shape, at, self.mistake), to),
        }
        Ok(())
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], fua: bool) -> Result<(), Unreadable> {
        assert!(self.present.contains(member));
        if self.mistake == Mistake::CompletionLeftOut && !fua && self.phase.get() == Phase::Commit {
            return Ok(());
        }
        for place in self.shape.places(at, from.len()) {
            self.errors.bad.remove(&(member, place));
        }
        let disk = &mut self.disks[member];
        disk.begin(self.shape, place(self.shape, at, self.mistake), from, 1);
        if let Some(states) = &mut self.states {
            states.push(self.disks.clone());
        }
        let fua = fua && self.mistake != Mistake::SuperblockWithoutFua;
        self.disks[member].end(1, fua);
        Ok(())
    }

    fn flush(&mut self, member: usize) -> Result<(), Unreadable> {
        if self.mistake == Mistake::CommitFlushLeftOut && self.phase.get() == Phase::Commit {
            return Ok(());
        }
        if self.mistake == Mistake::OpenFlushLeftOut && self.phase.get() == Phase::Open {
            return Ok(());
        }
        self.disks[member].begin_flush(2);
        self.disks[member].end_flush(2);
        if let Some(states) = &mut self.states {
            states.push(self.disks.clone());
        }
        Ok(())
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Words(Vec<u64>);

impl Words {
    fn new(layout: &Layout) -> Self {
        Self(vec![0; layout.words() as usize])
    }

    pub(crate) fn entry(&self, block: usize) -> Entry {
        Entry::from_word(self.0[block])
    }

    pub(crate) fn members(&self, segment: u32) -> Members {
        SegmentUse::from_word(self.0[BLOCKS + segment as usize])
            .unwrap()
            .members
    }
}

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        self.0[index as usize]
    }

    fn set(&mut self, index: u64, word: u64) {
        self.0[index as usize] = word;
    }
}

/// Reads a record by one way.
fn read_by(shape: &Shape, disks: &Disks, spot: &Spot, way: Source) -> Vec<u8> {
    let read = |member: usize| {
        let unit_bytes = shape.layout.unit_bytes() as u64;
        let at = source::at(spot, &shape.layout);
        let from = shape.layout.segment(0);
        let start = from + (at - from) / unit_bytes * unit_bytes;
        let skipped = (at - start) as usize;
        let mut bytes = vec![0; (skipped + spot.bytes).next_multiple_of(unit_bytes as usize)];
        disks[member].read(shape, start, &mut bytes);
        bytes[skipped..skipped + spot.bytes].to_vec()
    };
    match way {
        Source::Member(member) => read(member),
        Source::Rebuild([one, other]) => read(one)
            .iter()
            .zip(read(other))
            .map(|(one, other)| one ^ other)
            .collect(),
    }
}

/// Reads the record of a block by each way, from some of the members that have its segment.
pub(crate) fn read_record(
    shape: &Shape,
    disks: &Disks,
    (block, spot): (usize, &Spot),
    usable: Members,
    crc: &Fast,
) -> Result<Version, String> {
    let mut answers = source::sources(spot, usable).filter_map(|way| {
        let bytes = read_by(shape, disks, spot, way);
        let (record, payload) = Record::parse(&bytes, (&shape.layout, None), crc).ok()??;
        let is_right = record.index + u64::from(spot.block) == block as u64;
        is_right.then(|| version_of(payload))
    });
    let found = answers.next();
    let version = found.ok_or(format!("block {block} cannot be read from {usable:?}"))?;
    if answers.any(|other| other != version) {
        return Err(format!("block {block} has several contents"));
    }
    Ok(version)
}

/// Reads all blocks from some of the members.
pub(crate) fn read_all(
    shape: &Shape,
    disks: &Disks,
    table: &Words,
    usable: Members,
    crc: &Fast,
) -> Result<Versions, String> {
    let mut versions = [0; BLOCKS];
    for (block, version) in versions.iter_mut().enumerate() {
        let spot = table
            .entry(block)
            .spot(&shape.layout)
            .map_err(|e| format!("block {block}: {e:?}"))?;
        let Some(spot) = spot else { continue };
        let usable = table.members(spot.segment).and(usable);
        *version = read_record(shape, disks, (block, &spot), usable, crc)?;
    }
    Ok(versions)
}

/// Result of an assembly.
pub(crate) struct Assembled {
    pub(crate) opened: Opened,
    pub(crate) disks: Disks,
    pub(crate) table: Words,
    pub(crate) versions: Versions,
    pub(crate) segments: Segments<Vec<Segment>>,
    /// Assembled by force.
    pub(crate) is_forced: bool,
    /// Places that cannot be read still, and those that were read.
    pub(crate) errors: Errors,
}

/// Returns the epoch that a mistake takes, of those that are held.
fn highest(superblocks: &[Option<Superblock>; MEMBERS]) -> Option<Epoch> {
    let held = superblocks.iter().flatten();
    let present: Members = held.clone().map(|s| s.member).collect();
    let possible = held.map(|s| s.epoch);
    let possible = possible.filter(|e| e.in_sync().and(present).count() >= 2);
    possible.max_by_key(|epoch| (epoch.incarnation, epoch.failed.count()))
}

/// The superblock of a member.
pub(crate) fn superblock_of(shape: &Shape, disk: &Disk, crc: &Fast) -> Option<Superblock> {
    let read = |slot| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        disk.read(shape, Layout::slot(slot), &mut bytes);
        Superblock::parse(&bytes, slot, crc)
    };
    newer(read(0), read(1)).ok()
}

/// The superblock that a member shows while places cannot be read.
pub(crate) fn shown(
    shape: &Shape,
    disks: &Disks,
    member: usize,
    errors: &Errors,
) -> Option<Superblock> {
    let mut disk = disks[member].clone();
    let slots = (0..SLOTS).filter(|slot| errors.bad.contains(&(member, usize::from(*slot))));
    slots.for_each(|slot| disk.spoil(slot));
    superblock_of(shape, &disk, &Fast(Mistake::None))
}

impl Recorder<'_> {
    /// Makes the superblocks say what a mistake needs.
    fn mistake(&mut self) {
        let crc = Fast(self.mistake);
        let read = |disk: &Disk, member: usize| {
            superblock_of(self.shape, disk, &crc).filter(|_| self.present.contains(member))
        };
        let mut superblocks = [0, 1, 2].map(|member| read(&self.disks[member], member));
        match self.mistake {
            Mistake::HighestEpoch => {
                let Some(epoch) = highest(&superblocks) else {
                    return;
                };
                for superblock in superblocks.iter_mut().flatten() {
                    if epoch.in_sync().contains(superblock.member) {
                        superblock.epoch = epoch;
                    }
                }
            }
            Mistake::StaleMemberUsed => {
                let Some(epoch) = highest(&superblocks) else {
                    return;
                };
                let failed = epoch.failed.minus(self.present);
                for superblock in superblocks.iter_mut().flatten() {
                    superblock.epoch = Epoch { failed, ..epoch };
                }
            }
            _ => return,
        }
        self.superblocks = superblocks;
    }
}

/// Assembles an array from members that are there. The states in which a crash may cut it off are
/// returned too, if that is wanted.
pub(crate) fn assemble(
    shape: &Shape,
    (disks, present): (&Disks, Members),
    mistake: Mistake,
    with_states: bool,
) -> (Result<Assembled, Fault<Unreadable>>, Vec<Disks>) {
    let with = (mistake, with_states, Errors::default());
    assemble_with(shape, (disks, present), with)
}

/// Assembles an array of which some places cannot be read.
pub(crate) fn assemble_with_errors(
    shape: &Shape,
    (disks, present): (&Disks, Members),
    errors: Errors,
) -> Result<Assembled, Fault<Unreadable>> {
    assemble_with(shape, (disks, present), (Mistake::None, false, errors)).0
}

/// Assembles an array, with errors and with a mistake. By force if a slot is torn, and all can be
/// read.
pub(crate) fn assemble_with(
    shape: &Shape,
    of: (&Disks, Members),
    with: (Mistake, bool, Errors),
) -> (Result<Assembled, Fault<Unreadable>>, Vec<Disks>) {
    let is_readable = with.2.bad.is_empty();
    let mut attempt = assemble_by(shape, of, with.clone(), false);
    // What a power failure has torn was not relied on.
    if is_readable && matches!(attempt.0, Err(Fault::Unsure(_))) {
        attempt = assemble_by(shape, of, with, true);
    }
    attempt
}

/// Assembles an array, by force or not.
pub(crate) fn assemble_by(
    shape: &Shape,
    (disks, present): (&Disks, Members),
    (mistake, with_states, errors): (Mistake, bool, Errors),
    is_forced: bool,
) -> (Result<Assembled, Fault<Unreadable>>, Vec<Disks>) {
    let phase = Cell::new(Phase::Commit);
    let mut recorder = Recorder {
        shape,
        disks: disks.clone(),
        mistake,
        phase: &phase,
        superblocks: [None; MEMBERS],
        states: with_states.then(Vec::new),
        present,
        errors,
    };
    recorder.mistake();
    let id = hash_of(&(disks, present.bits()));
    let mut table = Words::new(&shape.layout);
    let result = run(&mut recorder, is_forced, id, &mut table);
    let states = recorder.states.take().unwrap_or_default();
    let result = result.map(|(opened, segments)| {
        let live = opened.log.live();
        let versions = read_all(shape, &recorder.disks, &table, live, &Fast(mistake));
        Assembled {
            opened,
            disks: recorder.disks,
            versions: versions.unwrap_or([u16::MAX; BLOCKS]),
            table,
            segments,
            is_forced,
            errors: recorder.errors,
        }
    });
    (result, states)
}

fn run(
    recorder: &mut Recorder<'_>,
    is_forced: bool,
    id: u64,
    table: &mut Words,
) -> Result<(Opened, Segments<Vec<Segment>>), Fault<Unreadable>> {
    let crc = Fast(recorder.mistake);
    let mut memory = [const { [0; 256] }; MEMBERS];
    assert!(memory[0].len() <= COLUMN_BYTES_MAX);
    let columns = memory.each_mut().map(|column| column.as_mut_slice());
    let present = recorder.present;
    let phase = recorder.phase;
    let mut recovery = Recovery::examine(recorder, (present, is_forced), columns, &crc)?;
    recovery.walk(table)?;
    recovery.commit(id)?;
    phase.set(Phase::Open);
    let segments = vec![Segment::default(); recovery.layout().parts().segments as usize];
    let mut segments = Segments::count(segments, table, recovery.layout()).unwrap();
    let layout = *recovery.layout();
    let free = segments.free_behind(recovery.opens_at(), (recovery.start(), &layout));
    let opened = recovery.open(id, free.ok_or(Fault::NoSegment)?)?;
    let first = &opened.first;
    note_batch(table, first, first.live, &layout);
    segments.begin(
        first.place.segment,
        (first.segment_sequence, first.sequence),
        first.live,
    );
    segments.acknowledge(first.place.segment, first.sequence);
    Ok((opened, segments))
}
