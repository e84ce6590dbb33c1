// SPDX-License-Identifier: GPL-2.0

//! Members in memory, of which a copy costs little: they share what they have not written.

use std::{
    collections::BTreeSet,
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    },
    rc::Rc,
};

use seglog::{
    batch::Head,
    devices::Devices,
    layout::{
        Layout,
        Parts,
        Place,
        SLOT_BYTES, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    superblock::{
        newer,
        Refusal,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    ArrayTag,
    Checksum, //
};

use crate::truth::Batch;

pub(crate) const UNIT_BYTES: usize = 128;
/// The batches that an array has at most.
pub(crate) const BATCHES_MAX: usize = 12;
pub(crate) const TAG: ArrayTag = ArrayTag(7);

pub(crate) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

pub(crate) fn layout() -> Layout {
    Layout::new(Parts {
        unit_bytes: UNIT_BYTES as u32,
        segment_units: 4,
        segments: 8,
        page_bytes: 128,
        entries: BATCHES_MAX as u64,
    })
    .unwrap()
}

/// Bytes that were written at once: of a slot, or a unit.
#[derive(Debug)]
pub(crate) struct Piece {
    hash: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn new(bytes: &[u8]) -> Rc<Self> {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Rc::new(Self {
            hash: hasher.finish(),
            bytes: bytes.to_vec(),
        })
    }
}

impl Hash for Piece {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// A slot: nothing, what was written, or what is damaged.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Slot {
    pub(crate) piece: Option<Rc<Piece>>,
    pub(crate) is_damaged: bool,
}

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Member {
    pub(crate) slots: [Slot; 2],
    /// The units that were written, by their bytes.
    units: Vec<(u64, Rc<Piece>)>,
}

impl Member {
    fn unit(&self, at: u64) -> Option<&Rc<Piece>> {
        let place = self.units.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(&self.units[place].1)
    }

    fn set(&mut self, at: u64, piece: Rc<Piece>) {
        match self.units.binary_search_by_key(&at, |(at, _)| *at) {
            Ok(place) => self.units[place].1 = piece,
            Err(place) => self.units.insert(place, (at, piece)),
        }
    }

    /// Returns the heads that it has, and whether their columns are whole.
    pub(crate) fn columns(&self, member: usize) -> impl Iterator<Item = (Head, bool)> + use<'_> {
        let first = layout().segment(0);
        self.units.iter().filter_map(move |(at, piece)| {
            let unit = at.checked_sub(first)? / UNIT_BYTES as u64;
            let units = u64::from(layout().parts().segment_units);
            let place = Place {
                segment: (unit / units) as u32,
                unit: (unit % units) as u32,
            };
            let (head, _) = Head::parse(&piece.bytes, place, (&layout(), TAG), &Crc)?;
            Some((head, head.is_whole(member, &piece.bytes, &Crc)))
        })
    }

    /// Returns the identifiers of the epochs in its slots that are whole, and of their parents.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> + use<'_> {
        let shown = (0..2).filter_map(|slot| self.slot(slot, false).ok());
        shown.flat_map(|shown| [shown.epoch.id, shown.epoch.parent])
    }

    /// Returns which of its slots are damaged.
    pub(crate) fn damaged(&self) -> [bool; 2] {
        self.slots.each_ref().map(|slot| slot.is_damaged)
    }

    /// Returns what a slot has, as an assembly parses it.
    pub(crate) fn slot(&self, slot: u8, is_bad: bool) -> Result<Superblock, Refusal> {
        let from = &self.slots[usize::from(slot)];
        if is_bad || from.is_damaged {
            return Err(Refusal::Unreadable);
        }
        let piece = from.piece.as_ref().ok_or(Refusal::NotFormatted)?;
        Superblock::parse(piece.bytes[..].try_into().unwrap(), slot, &Crc)
    }
}

/// Slots that cannot be read: one bit for each of the two of each member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bad(pub(crate) u8);

impl Bad {
    pub(crate) fn has(self, member: usize, slot: usize) -> bool {
        self.0 >> (2 * member + slot) & 1 == 1
    }
}

/// A write of a member.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) member: usize,
    at: u64,
    pieces: Vec<Rc<Piece>>,
}

impl Write {
    /// Whether it is of a place of a member.
    pub(crate) fn is_of(&self, (member, at): (usize, u64)) -> bool {
        let bytes = (self.pieces.len() * UNIT_BYTES) as u64;
        self.member == member && (self.at..self.at + bytes).contains(&at)
    }

    /// Returns the slot that it is of.
    pub(crate) fn slot(&self) -> Option<usize> {
        (self.at < 2 * SLOT_BYTES).then_some((self.at / SLOT_BYTES) as usize)
    }
}

/// The members.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Disks(pub(crate) [Member; MEMBERS]);

impl Disks {
    pub(crate) fn new() -> Self {
        let mut disks = Self::default();
        for member in 0..MEMBERS {
            disks.give(&Superblock::new(([1; 16], TAG), member, layout(), 5));
        }
        disks
    }

    /// Writes a superblock to its slot.
    pub(crate) fn give(&mut self, superblock: &Superblock) {
        self.0[superblock.member].slots[usize::from(superblock.slot())] = Slot {
            piece: Some(Piece::new(&superblock.bytes(&Crc))),
            is_damaged: false,
        };
    }

    /// Returns the superblock that a member shows.
    pub(crate) fn shown(&self, member: usize, bad: Bad) -> Option<Superblock> {
        let read = |slot: u8| self.0[member].slot(slot, bad.has(member, slot.into()));
        newer(read(0), read(1)).ok()
    }

    /// Whether a member has a column of a batch.
    pub(crate) fn has(&self, member: usize, batch: Batch) -> bool {
        let mut heads = self.0[member].columns(member);
        heads.any(|(head, is_whole)| is_whole && head.bodies[0] == batch)
    }

    /// A member has a unit.
    pub(crate) fn put(&mut self, member: usize, at: u64, bytes: &[u8]) {
        self.0[member].set(at, Piece::new(bytes));
    }

    pub(crate) fn write(&mut self, write: &Write) {
        let to = &mut self.0[write.member];
        if let Some(slot) = write.slot() {
            to.slots[slot] = Slot {
                piece: Some(write.pieces[0].clone()),
                is_damaged: false,
            };
            return;
        }
        for (unit, piece) in (0..).zip(&write.pieces) {
            to.set(write.at + unit * UNIT_BYTES as u64, piece.clone());
        }
    }

    /// The power fails in the middle of a write.
    pub(crate) fn tear(&mut self, write: &Write) {
        if let Some(slot) = write.slot() {
            self.0[write.member].slots[slot].is_damaged = true;
            return;
        }
        let garbage = Piece::new(&[0xaa; UNIT_BYTES]);
        for unit in 0..write.pieces.len() as u64 {
            let at = write.at + unit * UNIT_BYTES as u64;
            self.0[write.member].set(at, garbage.clone());
        }
    }

    /// Damages slots for good.
    pub(crate) fn damage(&mut self, bad: Bad) {
        for (member, to) in self.0.iter_mut().enumerate() {
            for (slot, to) in to.slots.iter_mut().enumerate() {
                to.is_damaged |= bad.has(member, slot);
            }
        }
    }

    /// Returns the units of the log that members have written.
    pub(crate) fn units(&self) -> BTreeSet<u64> {
        let first = layout().segment(0);
        let each = self.0.iter().flat_map(|member| &member.units);
        each.map(|(at, _)| *at).filter(|at| *at >= first).collect()
    }

    /// Returns what an assembly can read of members, as a number. Identifiers of epochs are told
    /// apart, and say nothing else.
    pub(crate) fn seen(&self, present: Members, bad: Bad, place: Option<(usize, u64)>) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut ids = Vec::new();
        let mut number = |id: u64| {
            let place = ids.iter().position(|known| *known == id);
            place.unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            })
        };
        place.hash(&mut hasher);
        for member in present.iter() {
            for slot in 0..2u8 {
                let read = self.0[member].slot(slot, bad.has(member, slot.into()));
                let told = read.map(|s| (s.epoch.failed, s.epoch.incarnation, s.writes));
                let start = read.map(|s| (s.start, s.devices));
                let ids = read.map(|s| [number(s.epoch.id), number(s.epoch.parent)]);
                (member, told.ok(), start.ok(), ids.ok()).hash(&mut hasher);
                (read.err() == Some(Refusal::NotFormatted)).hash(&mut hasher);
            }
            for unit in &self.0[member].units {
                if Some((member, unit.0)) != place {
                    unit.hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }
}

/// Members in an assembly.
pub(crate) struct Run {
    pub(crate) disks: Disks,
    pub(crate) bad: Bad,
    /// A unit that cannot be read.
    pub(crate) place: Option<(usize, u64)>,
    pub(crate) writes: Vec<Write>,
    /// The number of writes before each flush.
    pub(crate) flushes: Vec<usize>,
}

impl Devices for Run {
    type Error = ();

    fn bytes(&self, _: usize) -> u64 {
        layout().end_bytes()
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), ()> {
        let from = &self.disks.0[member];
        if at < 2 * SLOT_BYTES {
            let slot = (at / SLOT_BYTES) as usize;
            if from.slots[slot].is_damaged || self.bad.has(member, slot) {
                return Err(());
            }
            match &from.slots[slot].piece {
                Some(piece) => to[..SUPERBLOCK_BYTES].copy_from_slice(&piece.bytes),
                None => to.fill(0),
            }
            return Ok(());
        }
        let range = at..at + to.len() as u64;
        if self
            .place
            .is_some_and(|(m, at)| m == member && range.contains(&at))
        {
            return Err(());
        }
        for (unit, to) in (0..).zip(to.chunks_mut(UNIT_BYTES)) {
            match from.unit(at + unit * UNIT_BYTES as u64) {
                Some(piece) => to.copy_from_slice(&piece.bytes[..to.len()]),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], _: bool) -> Result<(), ()> {
        let chunk = if at < 2 * SLOT_BYTES {
            SUPERBLOCK_BYTES
        } else {
            UNIT_BYTES
        };
        let write = Write {
            member,
            at,
            pieces: from.chunks(chunk).map(Piece::new).collect(),
        };
        self.disks.write(&write);
        let range = at..at + from.len() as u64;
        self.place
            .take_if(|(m, at)| *m == member && range.contains(at));
        self.bad.0 &= !write.slot().map_or(0, |slot| 1 << (2 * member + slot));
        self.writes.push(write);
        Ok(())
    }

    fn flush(&mut self, _: usize) -> Result<(), ()> {
        self.flushes.push(self.writes.len());
        Ok(())
    }
}
