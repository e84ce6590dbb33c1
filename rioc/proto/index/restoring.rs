// SPDX-License-Identifier: GPL-2.0

//! The index is made anew from its slots, of which each was kept by itself.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    super::{
        slot::{
            InFile,
            Life,
            Memory,
            Object,
            Range,
            Slot,
            Slots,
            NONE, //
        },
        span::BLOCK_BYTES,
        tree, //
    },
    Index,
    Usage, //
};

/// The slot that does not fit to the others, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A range of no object.
    NoObject(u32),
    /// A range of blocks that no extent has.
    NoExtent(u32),
    /// A range that has a block in common with another one.
    Overlap(u32),
    /// An object with the name of another one.
    Name(u32),
    /// An extent that no range refers to.
    Unused(u32),
    /// A range that is called clean, of blocks that the file of its object is not meant for.
    NotInFile(u32),
}

impl Damage {
    /// Returns the error of the store.
    pub const fn errno(self) -> Errno {
        Errno::EUCLEAN
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoObject(slot) => write!(f, "range in slot {slot} is of no object"),
            Self::NoExtent(slot) => write!(f, "range in slot {slot} is of no extent"),
            Self::Overlap(slot) => write!(f, "range in slot {slot} overlaps another one"),
            Self::Name(slot) => write!(f, "object in slot {slot} has the name of another one"),
            Self::Unused(slot) => write!(f, "extent in slot {slot} has no range"),
            Self::NotInFile(slot) => write!(f, "range in slot {slot} is in no file"),
        }
    }
}

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Makes the index of slots, each as [`entry::slot`](super::super::entry::slot) has given it.
    /// Copies of objects that were not complete are doomed, and objects of which ranges are behind
    /// the end are shrinking: the user calls [`Self::reap`] until nothing is left, and
    /// [`Self::trim`] for each slot.
    ///
    /// # Errors
    ///
    /// Returns the first slot that does not fit: all of them come from a medium.
    pub fn restore(slots: S, mut buckets: B, key: [u64; 2]) -> Result<Self, Damage> {
        buckets.as_mut().fill(NONE);
        let mut index = Self {
            slots: Slots::restored(slots),
            buckets,
            doomed: NONE,
            unfiled: [NONE; 2],
            lanes: NONE,
            incarnations: 0,
            usage: Usage::default(),
            key,
            is_backed: false,
            cuts: [0; 64],
        };
        for number in 0..index.slots.count() {
            match index.slots.get(number).copied() {
                Some(Slot::Object(object)) => index.restore_object(number, &object)?,
                Some(Slot::Range(range)) => index.restore_range(number, &range)?,
                Some(Slot::Ticket(_)) => index.link_lane(number),
                _ => (),
            }
        }
        for number in 0..index.slots.count() {
            let Some(extent) = index.slots.extent(number).copied() else {
                continue;
            };
            if extent.references == 0 {
                return Err(Damage::Unused(number));
            }
            let used = index.used_blocks(&extent);
            index.usage.extents = index.usage.extents.saturating_add(1);
            index.usage.blocks = index.usage.blocks.saturating_add(used.count().into());
            if let Some(extent) = index.slots.extent_mut(number) {
                extent.used = used;
            }
        }
        Ok(index)
    }

    fn restore_object(&mut self, number: u32, object: &Object) -> Result<(), Damage> {
        self.usage.objects = self.usage.objects.saturating_add(1);
        if object.life == Life::Linked {
            if self.find(object.id).is_some() {
                return Err(Damage::Name(number));
            }
            self.link_to_bucket(number, object.id);
            return Ok(());
        }
        // Nothing will complete it.
        let doomed = core::mem::replace(&mut self.doomed, number);
        if let Some(object) = self.slots.object_mut(number) {
            object.life = Life::Doomed;
            object.next = doomed;
        }
        Ok(())
    }

    fn restore_range(&mut self, number: u32, range: &Range) -> Result<(), Damage> {
        let object = self.slots.object(range.object);
        let object = *object.ok_or(Damage::NoObject(number))?;
        let end = range.first.checked_add(range.blocks);
        let extent = self.slots.extent(range.extent);
        let is_in = |blocks: u8| end.is_some_and(|end| end <= blocks);
        let is_zeroes = range.extent == NONE;
        if !is_zeroes && !extent.is_some_and(|extent| is_in(extent.blocks)) {
            return Err(Damage::NoExtent(number));
        }
        self.refer(number, range.extent);
        let next = tree::find(&self.slots, object.root, range.block);
        if next.is_some_and(|(_, next)| next.block < range.end()) {
            return Err(Damage::Overlap(number));
        }
        let seed = self.seed();
        let root = tree::insert(&mut self.slots, object.root, number, seed);
        // CAST: At most the blocks of the largest object.
        let end = object.size.div_ceil(BLOCK_BYTES) as u32;
        let is_clean = range.in_file == InFile::Clean;
        if is_clean && range.block < end && range.end() > object.backed {
            return Err(Damage::NotInFile(number));
        }
        if let Some(object) = self.slots.object_mut(range.object) {
            object.root = root;
            object.blocks = object.blocks.saturating_add(range.blocks.into());
            object.is_shrinking |= range.end() > end;
        }
        self.usage.ranges = self.usage.ranges.saturating_add(1);
        self.usage.add(range.in_file, range.blocks);
        Ok(())
    }
}
