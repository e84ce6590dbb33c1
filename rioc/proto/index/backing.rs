// SPDX-License-Identifier: GPL-2.0

//! The files of objects: what is in them, what is on its way, and what may be dropped here.
//!
//! A file is meant for the blocks below `backed` that have no range. It is written by one job at a
//! time: the blocks of some ranges, after it was cut where it may have something that its object
//! does not have any more. A range is clean when the file was synced after that, and it is still
//! the one that was written.

use core::ops::Range as Blocks;

use super::{
    super::{
        slot::{
            InFile,
            Life,
            Memory,
            Object,
            Range,
            Slot,
            Stored,
            NONE, //
        },
        span::{
            ObjectId,
            Span,
            BLOCK_BYTES,
            IO_BLOCKS_MAX,
            OBJECT_BYTES_MAX, //
        },
    },
    data::{
        Part,
        Source, //
    },
    Changes,
    Index,
    Refused,
    STEP_RANGES, //
};

/// The blocks of a range of zeroes at most.
pub(super) const ZEROES_MAX: u32 = u8::MAX as u32;
/// The ranges that one job writes at most.
const PARTS_MAX: usize = 8;

/// Blocks that are in a file only, and are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The object.
    pub object: ObjectId,
    /// The first block.
    pub block: u32,
    /// The number of blocks.
    pub blocks: u32,
    cuts: u32,
}

/// A job: blocks that go to the file of an object. Their extents are pinned.
#[derive(Debug)]
#[must_use = "its extents are pinned"]
pub struct Leaving {
    /// The object.
    pub object: ObjectId,
    /// The block at which the file is cut before anything is written to it.
    pub cut_at: Option<u32>,
    /// The size that the file gets.
    pub size: u64,
    /// The blocks that the file has at least.
    backed: u32,
    number: u32,
    parts: [Part; PARTS_MAX],
    count: usize,
}

/// The rest of what was to be written of an object, behind a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing, or the object is gone.
    Nothing,
    /// All that is dirty from a block on.
    From(u32),
    /// The blocks of the job, as the object was cut meanwhile, or its file has failed.
    Again,
}

impl Leaving {
    /// Returns where the blocks are that are written.
    pub fn parts(&self) -> &[Part] {
        self.parts.get(..self.count).unwrap_or_default()
    }

    /// Whether a file may be written, of this size; without one there is none. If it is shorter
    /// than what it has to have, bytes of its object are lost: it must not look as if they were
    /// zeroes.
    pub fn may_write(&self, size: Option<u64>) -> bool {
        size.unwrap_or_default().div_ceil(BLOCK_BYTES) >= self.backed.into()
    }
}

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Objects have files from now on, which may have anything behind what is known of them.
    pub fn back(&mut self) {
        self.is_backed = true;
        for number in 0..self.slots.count() {
            if let Some(object) = self.slots.object_mut(number) {
                (object.is_cut, object.has_file) = (true, true);
            }
        }
    }

    /// Adds an object of which there is a file, when the store begins.
    ///
    /// # Errors
    ///
    /// Returns why it is not added.
    pub fn adopt(
        &mut self,
        (id, size): (ObjectId, u64),
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        if size > OBJECT_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        if self.find(id).is_some() {
            return Err(Refused::Exists);
        }
        let number = self.add(id, (size, Life::Linked), changes)?;
        if let Some(object) = self.slots.object_mut(number) {
            // CAST: At most the blocks of the largest object.
            object.backed = size.div_ceil(BLOCK_BYTES) as u32;
            // Its file ends where it ends.
            object.is_cut = false;
        }
        Ok(())
    }

    /// An object is longer, without a block: its file is to have this size, too.
    pub(super) fn differ(&mut self, number: u32) {
        let is_backed = self.is_backed;
        if let Some(object) = self.slots.object_mut(number) {
            object.is_cut |= is_backed;
        }
    }

    fn cuts(&self, id: ObjectId) -> u32 {
        let place = self.bit(id).trailing_zeros() as usize;
        self.cuts.get(place).copied().unwrap_or_default()
    }

    /// Counts that something is cut off an object, or dropped: what is being fetched may be other
    /// bytes.
    pub(super) fn count_cut(&mut self, id: ObjectId) {
        let place = self.bit(id).trailing_zeros() as usize;
        if let Some(cuts) = self.cuts.get_mut(place) {
            *cuts = cuts.wrapping_add(1);
        }
    }

    /// An object is shorter: what its file has behind the end never comes back.
    pub(super) fn cut_file(&mut self, number: u32, size: u64) {
        let is_backed = self.is_backed;
        let Some(object) = self.slots.object_mut(number) else {
            return;
        };
        // CAST: At most the blocks of the largest object.
        object.backed = object.backed.min(size.div_ceil(BLOCK_BYTES) as u32);
        object.is_cut |= is_backed;
        let id = object.id;
        self.count_cut(id);
    }

    /// Has holes be zeroes where the file of an object may have something else.
    pub(super) fn cover(
        &mut self,
        number: u32,
        blocks: &Blocks<u32>,
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        let Some(backed) = self.slots.object(number).map(|object| object.backed) else {
            return Ok(());
        };
        let mut block = blocks.start.max(backed);
        while let Some((_, range)) = self.range_in(number, block..blocks.end) {
            if range.block > block {
                break;
            }
            block = range.end();
        }
        if block < blocks.end {
            // What is on its way may be one of them, and the file is to have their size.
            self.differ(number);
        }
        let end = blocks.end.min(backed);
        let mut block = blocks.start;
        while block < end {
            let next = self.range_in(number, block..end);
            let start = next.map_or(end, |(_, range)| range.block.max(block));
            let zeroes = start.saturating_sub(block).min(ZEROES_MAX);
            if zeroes == 0 {
                block = next.map_or(end, |(_, range)| range.end());
                continue;
            }
            // CAST: At most ZEROES_MAX.
            let range = Range::new((number, block), NONE, (0, zeroes as u8));
            self.insert(range, changes)?;
            block = block.saturating_add(zeroes);
        }
        Ok(())
    }

    /// Returns blocks that are in the file only, the first ones of some bytes: they are fetched
    /// before the bytes are read, or written in part.
    pub fn missing(&self, id: ObjectId, span: &Span) -> Option<Fetch> {
        let (number, object) = self.known(id).ok()?;
        let blocks = span.blocks();
        let end = blocks.end.min(object.backed);
        let mut block = blocks.start;
        while block < end {
            let next = self.range_at(number, block);
            let start = next.map_or(end, |(_, range)| range.block.max(block).min(end));
            if start > block {
                let most = IO_BLOCKS_MAX as u32;
                return Some(Fetch {
                    object: id,
                    block,
                    blocks: start.saturating_sub(block).min(most),
                    cuts: self.cuts(id),
                });
            }
            block = next.map_or(end, |(_, range)| range.end());
        }
        None
    }

    /// Whether nothing was cut off an object, or dropped, since its blocks were missing, and they
    /// still are.
    pub fn is_current(&self, fetch: &Fetch) -> bool {
        let end = fetch.block.saturating_add(fetch.blocks);
        let number = self.find(fetch.object).unwrap_or(NONE);
        let is_other = self.range_in(number, fetch.block..end).is_some();
        fetch.cuts == self.cuts(fetch.object) && !is_other
    }

    /// Returns the same fetch of this moment: what was dropped since it was current, to make room
    /// for it, is none of its blocks.
    pub fn renewed(&self, fetch: &Fetch) -> Fetch {
        let cuts = self.cuts(fetch.object);
        Fetch { cuts, ..*fetch }
    }

    /// Blocks were fetched, and are stored. Returns whether they are used: something else may be
    /// there meanwhile, and what is still missing is fetched again.
    ///
    /// # Errors
    ///
    /// Returns that there is no room.
    pub fn fetched(
        &mut self,
        fetch: &Fetch,
        stored: Stored,
        changes: &mut impl Changes,
    ) -> Result<bool, Refused> {
        let Ok((number, _)) = self.known(fetch.object) else {
            return Ok(false);
        };
        if !self.is_current(fetch) {
            return Ok(false);
        }
        self.require(super::ranges::STORE_SLOTS)?;
        // CAST: At most IO_BLOCKS_MAX.
        let blocks = fetch.blocks as u8;
        self.store((number, fetch.block), (stored, blocks), changes)?;
        if let Some((range, _)) = self.range_at(number, fetch.block) {
            self.set_in_file(range, InFile::Clean, changes);
        }
        Ok(true)
    }

    fn set_in_file(&mut self, number: u32, in_file: InFile, changes: &mut impl Changes) {
        if let Some(range) = self.slots.range_mut(number) {
            let before = core::mem::replace(&mut range.in_file, in_file);
            let blocks = range.blocks;
            self.usage.take(before, blocks);
            self.usage.add(in_file, blocks);
            changes.changed(number);
        }
    }

    /// Begins a job for an object, of what is dirty from a block on; there is no other job. It has
    /// no blocks if none is dirty.
    ///
    /// # Errors
    ///
    /// Returns that there is no such object.
    pub fn leave(
        &mut self,
        (id, from): (ObjectId, u32),
        changes: &mut impl Changes,
    ) -> Result<Leaving, Refused> {
        let (number, object) = self.known(id)?;
        let mut leaving = Leaving {
            object: id,
            cut_at: object.is_cut.then_some(object.backed),
            size: object.size,
            backed: object.backed,
            number,
            parts: [Part::default(); PARTS_MAX],
            count: 0,
        };
        if let Some(object) = self.slots.object_mut(number) {
            (object.is_cut, object.is_leaving) = (false, true);
        }
        let mut block = from;
        // What is behind its end goes, and never comes back.
        // CAST: At most the blocks of the largest object.
        let end = object.size.div_ceil(BLOCK_BYTES) as u32;
        while let Some((slot, range)) = self.range_in(number, block..end) {
            block = range.end();
            if range.in_file == InFile::Clean {
                continue;
            }
            let Some(part) = leaving.parts.get_mut(leaving.count) else {
                break;
            };
            *part = Part {
                block: range.block,
                blocks: range.blocks.into(),
                source: self.source(number, range.block),
            };
            leaving.count = leaving.count.saturating_add(1);
            let source: Option<Source> = part.source;
            self.pin(source.as_ref());
            self.set_in_file(slot, InFile::Leaving, changes);
        }
        Ok(leaving)
    }

    /// A job has ended: what it has written is clean if the file was synced after that
    /// (`is_synced`), else it is dirty as before. Returns what is left of the object.
    pub fn left(&mut self, leaving: &Leaving, is_synced: bool, changes: &mut impl Changes) -> Left {
        let object = self.slots.object(leaving.number).copied();
        let object = object.filter(|object| object.is_leaving && object.id == leaving.object);
        let is_cut = object.is_some_and(|object| object.is_cut);
        let mut backed = object.map_or(0, |object| object.backed);
        if is_synced && !is_cut {
            // Where nothing was written, the file has zeroes.
            // CAST: At most the blocks of the largest object.
            backed = backed.max(leaving.size.div_ceil(BLOCK_BYTES) as u32);
        }
        if let Some(object) = self.slots.object_mut(leaving.number) {
            if object.is_leaving {
                (object.backed, object.is_leaving) = (backed, false);
                object.has_failed = !is_synced;
                object.is_cut |= !is_synced;
                changes.changed(leaving.number);
            }
        }
        for part in leaving.parts() {
            if object.is_some() {
                self.part_left((leaving.number, part), (is_synced, backed), changes);
            }
            if let Some(source) = &part.source {
                self.unpin(source, changes);
            }
        }
        match leaving.parts().last() {
            _ if object.is_none() => Left::Nothing,
            _ if is_cut || !is_synced => Left::Again,
            Some(last) if leaving.count == PARTS_MAX => {
                Left::From(last.block.saturating_add(last.blocks))
            }
            _ => Left::Nothing,
        }
    }

    /// Marks what is still there of a range that was written.
    fn part_left(
        &mut self,
        (number, part): (u32, &Part),
        (is_synced, backed): (bool, u32),
        changes: &mut impl Changes,
    ) {
        let end = part.block.saturating_add(part.blocks);
        let mut block = part.block;
        while let Some((slot, range)) = self.range_in(number, block..end) {
            block = range.end();
            // A range that is new is dirty.
            if range.in_file == InFile::Leaving {
                let is_clean = is_synced && range.end() <= backed;
                let in_file = if is_clean {
                    InFile::Clean
                } else {
                    InFile::Dirty
                };
                self.set_in_file(slot, in_file, changes);
                // Zeroes that the file has need no slot.
                if let Some(zeroes) = self.slots.range(slot).copied() {
                    if is_clean && zeroes.extent == NONE {
                        self.remove(slot, &zeroes, changes);
                    }
                }
            }
        }
    }

    /// Drops ranges of an extent, in a slot, that is in the files of all objects that have it; if
    /// these are very many, of some of them, whether or not it is in those of others. Returns
    /// whether it did: the rest follows when it is called again. Unless it takes any one, what was
    /// read more than once stays for as many looks: what is read once drops nothing else.
    pub fn drop_clean(&mut self, of: (u32, bool), changes: &mut impl Changes) -> bool {
        let (number, takes_any) = of;
        let extent = self.slots.extent(number).copied();
        let Some(extent) = extent.filter(|e| e.pins == 0 && e.references > 0) else {
            return false;
        };
        let mut next = extent.ranges;
        for _ in 0..STEP_RANGES {
            let Some(range) = self.slots.range(next) else {
                break;
            };
            if range.in_file != InFile::Clean {
                return false;
            }
            next = range.next;
        }
        let extents = self.slots.extent_mut(number);
        if let Some(used) = extents.filter(|used| used.uses > 1 && !takes_any) {
            used.uses = used.uses.saturating_sub(1);
            return false;
        }
        let mut next = extent.ranges;
        for _ in 0..STEP_RANGES {
            let Some(range) = self.slots.range(next).copied() else {
                break;
            };
            if let Some(id) = self.slots.object(range.object).map(|object| object.id) {
                self.count_cut(id);
            }
            self.remove(next, &range, changes);
            next = range.next;
        }
        true
    }

    /// Returns an object of which something is to be written, in the slots from one on, as far as
    /// `max` of them: its name, and the first block. `all` includes those whose blocks are in
    /// their files, but not their sizes, and has no blocks behind an end, which no one removes any
    /// more. One whose file has failed is left out until the look has come by it. Returns the slot
    /// at which the next look begins as well; behind the last one it is the first one.
    pub fn dirty(&mut self, from: u32, (max, all): (u32, bool)) -> (Option<(ObjectId, u32)>, u32) {
        let end = self.slots.count().min(from.saturating_add(max));
        for slot in from..end {
            let next = if slot.saturating_add(1) < self.slots.count() {
                slot.saturating_add(1)
            } else {
                0
            };
            let (object, block) = match self.slots.get(slot) {
                Some(Slot::Range(range)) if range.in_file == InFile::Dirty => {
                    let object = self.slots.object(range.object);
                    let at = u64::from(range.block).saturating_mul(BLOCK_BYTES);
                    (
                        object.filter(|object| !all || at < object.size),
                        range.block,
                    )
                }
                Some(Slot::Object(object)) if object.has_failed => {
                    if let Some(object) = self.slots.object_mut(slot) {
                        object.has_failed = false;
                    }
                    continue;
                }
                Some(Slot::Object(object)) if all && object.is_cut => (Some(object), 0),
                _ => continue,
            };
            // What has no name has no file.
            let is_due = |object: &&Object| object.life == Life::Linked && !object.has_failed;
            if let Some(object) = object.filter(is_due) {
                return (Some((object.id, block)), next);
            }
        }
        (None, if end < self.slots.count() { end } else { 0 })
    }

    /// Returns the blocks of objects that are not in their files: all slots are looked at, when the
    /// store has ended.
    pub fn unwritten(&self) -> u64 {
        let ranges = (0..self.slots.count()).filter_map(|slot| self.slots.range(slot));
        let is_lost = |range: &&Range| {
            let at = u64::from(range.block).saturating_mul(BLOCK_BYTES);
            let object = self.slots.object(range.object);
            let is_there = |object: &Object| object.life == Life::Linked && at < object.size;
            range.in_file != InFile::Clean && object.is_some_and(is_there)
        };
        ranges.filter(is_lost).fold(0, |blocks: u64, range| {
            blocks.saturating_add(range.blocks.into())
        })
    }
}
