// SPDX-License-Identifier: GPL-2.0

//! The index: which objects there are, and which blocks of theirs are where.
//!
//! Blocks are never changed. A write puts whole blocks into a new *extent*, and the ranges of the
//! object refer to it; a copy lets ranges of another object refer to the same extents. What no
//! range refers to is free. Bytes of a block behind the end of its object are zeroes.
//!
//! Each operation is carried out under one lock of the user, as a whole or not at all, in a bounded
//! number of steps: what may be long, as the end of a large object, is told to be unfinished, and
//! goes on when its user calls again. Operations on the same blocks follow each other
//! ([`claim`](super::claim)), but for reads, which pin the extents that they have found.

use ferro_proto::errno::Errno;

use super::{
    entry::{
        self,
        Entry, //
    },
    slot::{
        Blocks,
        InFile,
        Life,
        Memory,
        Object,
        Slot,
        Slots,
        Stored,
        NONE,
        USES_MAX, //
    },
    span::ObjectId, //
};

mod backing;
mod copying;
mod data;
mod moving;
mod ranges;
mod restoring;
mod size;
mod tickets;
mod unfiled;

pub use self::{
    backing::{
        Fetch,
        Leaving,
        Left, //
    },
    copying::{
        CopyEdge,
        CopyEdges,
        COPY_RANGES_MAX, //
    },
    data::{
        Edge,
        Edges,
        Part,
        Reading,
        Source, //
    },
    restoring::Damage, //
};

/// The ranges that one step of what may be long removes or copies at most.
pub const STEP_RANGES: u32 = 64;
/// The slots that one list looks at.
const LIST_SLOTS: u32 = 4096;

/// The reason why an operation is not carried out: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No object has the name.
    NoObject,
    /// An object has the name.
    Exists,
    /// No slot is free for what the operation adds.
    NoSlots,
    /// The operation has more bytes than one may have.
    TooLong,
    /// The copy has more ranges than one may have: a shorter one may be possible.
    TooManyRanges,
    /// Source and destination of a copy differ by a part of a block.
    Misaligned,
    /// Source and destination of a copy have a block in common.
    Overlaps,
    /// The object was made shorter, and cannot become longer before that is finished: the user
    /// tries again after [`Index::trim`].
    Shrinking,
    /// A block at an edge, which has to be stored anew, has no place.
    NoPlace,
}

impl Refused {
    /// Returns the error that the client gets.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoObject => Errno::ENOENT,
            Self::Exists => Errno::EEXIST,
            Self::NoSlots => Errno::ENOSPC,
            Self::TooLong | Self::TooManyRanges => Errno::EMSGSIZE,
            Self::Misaligned | Self::Overlaps => Errno::EINVAL,
            Self::Shrinking => Errno::EAGAIN,
            Self::NoPlace => Errno::EIO,
        }
    }
}

/// The user of the index, who is told what follows from an operation.
pub trait Changes {
    /// The entry of a slot is another one: [`Index::entry`] has it when the operation has returned.
    fn changed(&mut self, slot: u32);

    /// No range and no read uses these blocks of an extent any more.
    fn freed(&mut self, stored: Stored, blocks: Blocks);
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its size in bytes.
    pub size: u64,
    /// The blocks that are stored, and are no holes; those that it shares count for each object.
    pub blocks: u64,
}

/// The slots that are in use, by what they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The objects, of each part of life.
    pub objects: u32,
    /// The ranges.
    pub ranges: u32,
    /// The extents, those included that reads in flight use only.
    pub extents: u32,
    /// The blocks of extents that are used, and are not given back.
    pub blocks: u64,
    /// The blocks of ranges that are in no file, or not known to be durable there.
    pub dirty: u64,
    /// The blocks of ranges that are durable in files.
    pub clean: u64,
}

impl Usage {
    /// Returns the count of the blocks of such ranges.
    fn in_file(&mut self, in_file: InFile) -> &mut u64 {
        match in_file {
            InFile::Dirty | InFile::Leaving => &mut self.dirty,
            InFile::Clean => &mut self.clean,
        }
    }

    /// A range has so many blocks more.
    fn add(&mut self, in_file: InFile, blocks: u8) {
        let count = self.in_file(in_file);
        *count = count.saturating_add(blocks.into());
    }

    /// A range has so many blocks less.
    fn take(&mut self, in_file: InFile, blocks: u8) {
        let count = self.in_file(in_file);
        *count = count.saturating_sub(blocks.into());
    }
}

/// The index.
#[derive(Clone, Debug)]
pub struct Index<S, B> {
    slots: Slots<S>,
    /// The first object of each hash of names.
    buckets: B,
    /// The first object that is doomed.
    doomed: u32,
    /// The first and the last one of those whose ranges are gone, and that may have files.
    unfiled: [u32; 2],
    /// The first slot of a lane of a client.
    lanes: u32,
    /// The place in the order of the last incarnation of a client.
    incarnations: u64,
    usage: Usage,
    key: [u64; 2],
    /// Objects have files.
    is_backed: bool,
    /// The times that something was cut off objects, or dropped, by a hash of their names.
    cuts: [u32; 64],
}

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Makes an empty index. `slots` bounds what it can have, `buckets` is best as large as the
    /// number of objects that are expected, `key` is random.
    pub fn new(slots: S, mut buckets: B, key: [u64; 2]) -> Self {
        buckets.as_mut().fill(NONE);
        Self {
            slots: Slots::new(slots),
            buckets,
            doomed: NONE,
            unfiled: [NONE; 2],
            lanes: NONE,
            incarnations: 0,
            usage: Usage::default(),
            key,
            is_backed: false,
            cuts: [0; 64],
        }
    }

    /// Returns what is in use.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Returns the slots.
    pub const fn slots(&self) -> &Slots<S> {
        &self.slots
    }

    /// Returns what a log keeps of a slot; zeroes if there is no such slot.
    pub fn entry(&self, slot: u32) -> Entry {
        self.slots.get(slot).map(entry::entry).unwrap_or_default()
    }

    fn seed(&self) -> u32 {
        let [one, other] = self.key;
        // CAST: Some of its bits.
        (one ^ other.rotate_left(32)) as u32
    }

    /// Returns one of 64 bits, by the name of an object.
    pub fn bit(&self, id: ObjectId) -> u64 {
        // CAST: Below 64.
        1u64.wrapping_shl(id.bucket(self.key, 64) as u32)
    }

    /// Whether something without a name is left to be removed by [`Self::reap`], now.
    pub fn is_reaping(&self) -> bool {
        let [unfiled, _] = self.unfiled;
        self.doomed != NONE || (unfiled != NONE && self.file_to_remove().is_none())
    }

    fn bucket(&self, id: ObjectId) -> usize {
        id.bucket(self.key, self.buckets.as_ref().len())
    }

    /// Goes through the objects of a bucket, from one on.
    fn chain(&self, first: u32) -> impl Iterator<Item = (u32, &Object)> {
        let mut next = first;
        core::iter::from_fn(move || {
            let number = next;
            let object = self.slots.object(number)?;
            next = object.next;
            Some((number, object))
        })
    }

    fn first_of(&self, bucket: usize) -> u32 {
        self.buckets.as_ref().get(bucket).copied().unwrap_or(NONE)
    }

    /// Returns the slot of an object.
    fn find(&self, id: ObjectId) -> Option<u32> {
        let mut chain = self.chain(self.first_of(self.bucket(id)));
        chain.find_map(|(number, object)| (object.id == id).then_some(number))
    }

    fn known(&self, id: ObjectId) -> Result<(u32, Object), Refused> {
        let number = self.find(id).ok_or(Refused::NoObject)?;
        let object = self.slots.object(number).ok_or(Refused::NoObject)?;
        Ok((number, *object))
    }

    fn require(&self, slots: u32) -> Result<(), Refused> {
        if self.slots.free_count() < slots {
            return Err(Refused::NoSlots);
        }
        Ok(())
    }

    /// Adds an object without ranges; one that is linked has no name sake.
    fn add(
        &mut self,
        id: ObjectId,
        (size, life): (u64, Life),
        changes: &mut impl Changes,
    ) -> Result<u32, Refused> {
        let object = Object {
            id,
            size,
            root: NONE,
            next: NONE,
            blocks: 0,
            life,
            is_shrinking: false,
            uses: 1,
            backed: 0,
            is_cut: self.is_backed,
            is_leaving: false,
            has_file: self.is_backed,
            has_failed: false,
        };
        let number = self.slots.take(Slot::Object(object));
        let number = number.ok_or(Refused::NoSlots)?;
        self.usage.objects = self.usage.objects.saturating_add(1);
        if life == Life::Linked {
            self.link_to_bucket(number, id);
        }
        changes.changed(number);
        Ok(number)
    }

    fn link_to_bucket(&mut self, number: u32, id: ObjectId) {
        let bucket = self.bucket(id);
        if let Some(first) = self.buckets.as_mut().get_mut(bucket) {
            let next = core::mem::replace(first, number);
            if let Some(object) = self.slots.object_mut(number) {
                object.next = next;
                object.life = Life::Linked;
            }
        }
    }

    /// Takes an object out of its bucket: its ranges go in steps.
    fn doom(&mut self, number: u32, changes: &mut impl Changes) {
        let Some(object) = self.slots.object(number).copied() else {
            return;
        };
        self.count_cut(object.id);
        if object.life == Life::Linked {
            let bucket = self.bucket(object.id);
            let before = self
                .chain(self.first_of(bucket))
                .find_map(|(before, object)| (object.next == number).then_some(before));
            match before.and_then(|before| self.slots.object_mut(before)) {
                Some(before) => before.next = object.next,
                None => {
                    if let Some(first) = self.buckets.as_mut().get_mut(bucket) {
                        *first = object.next;
                    }
                }
            }
        }
        let doomed = core::mem::replace(&mut self.doomed, number);
        if let Some(object) = self.slots.object_mut(number) {
            object.life = Life::Doomed;
            object.next = doomed;
        }
        changes.changed(number);
    }

    /// Makes an object of no bytes. One that is there is left as it is, or is an error.
    ///
    /// # Errors
    ///
    /// Returns why it is not.
    pub fn create(
        &mut self,
        (id, is_new): (ObjectId, bool),
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        match self.find(id) {
            Some(_) if is_new => Err(Refused::Exists),
            Some(_) => Ok(()),
            None => self.add(id, (0, Life::Linked), changes).map(|_| ()),
        }
    }

    /// Removes an object. What it has used is free after [`Self::reap`].
    ///
    /// # Errors
    ///
    /// Returns that there is none.
    pub fn delete(&mut self, id: ObjectId, changes: &mut impl Changes) -> Result<(), Refused> {
        let (number, _) = self.known(id)?;
        self.doom(number, changes);
        Ok(())
    }

    /// Takes a step of the removal of what has no name any more; returns whether something is left.
    pub fn reap(&mut self, changes: &mut impl Changes) -> bool {
        let number = self.doomed;
        if let Some(object) = self.slots.object(number).copied() {
            if self.cut(number, &(0..u32::MAX), STEP_RANGES, changes) {
                self.doomed = object.next;
                match object.has_file {
                    true => self.unfile(number),
                    false => self.give_back(number, changes),
                }
            }
        } else if self.file_to_remove().is_none() {
            if let Some(number) = self.next_unfiled() {
                self.give_back(number, changes);
            }
        }
        self.is_reaping()
    }

    fn give_back(&mut self, number: u32, changes: &mut impl Changes) {
        self.slots.give_back(number);
        self.usage.objects = self.usage.objects.saturating_sub(1);
        changes.changed(number);
    }

    /// Chooses the object that is evicted next, of `max` slots from one on: one that was looked at
    /// as often as it was used, or any one. Returns the slot at which the next look begins as well;
    /// behind the last one it is the first one.
    pub fn oldest(&mut self, from: u32, max: u32, takes_any: bool) -> (Option<ObjectId>, u32) {
        let end = self.slots.count().min(from.saturating_add(max));
        for slot in from..end {
            let Some(object) = self.slots.object_mut(slot) else {
                continue;
            };
            if object.life == Life::Linked && (object.uses == 0 || takes_any) {
                return (Some(object.id), slot.saturating_add(1));
            }
            object.uses = object.uses.saturating_sub(1);
        }
        (None, if end < self.slots.count() { end } else { 0 })
    }

    /// An object is read, or written. What is written again and again is used once: else all that
    /// is new would seem to be used often.
    fn use_object(&mut self, number: u32, is_read: bool) {
        if let Some(object) = self.slots.object_mut(number) {
            object.uses = match is_read {
                true => object.uses.saturating_add(1).min(USES_MAX),
                false => object.uses.max(1),
            };
        }
    }

    /// Returns the state of an object.
    ///
    /// # Errors
    ///
    /// Returns that there is none.
    pub fn stat(&self, id: ObjectId) -> Result<Stat, Refused> {
        let (_, object) = self.known(id)?;
        Ok(Stat {
            size: object.size,
            blocks: object.blocks.into(),
        })
    }

    /// Names objects, in no order, from `cursor` on; returns how many, and the cursor for the next
    /// ones. An object that is there all the time, from cursor 0 to `None`, is named once; at most
    /// as many slots are looked at as `names` can have, or some thousand.
    pub fn list(&self, cursor: u32, names: &mut [ObjectId]) -> (usize, Option<u32>) {
        let mut names = names.iter_mut();
        let (mut count, mut next) = (0usize, cursor);
        let end = self.slots.count().min(cursor.saturating_add(LIST_SLOTS));
        while next < end {
            let object = self.slots.object(next);
            if let Some(object) = object.filter(|object| object.life == Life::Linked) {
                let Some(name) = names.next() else {
                    return (count, Some(next));
                };
                *name = object.id;
                count = count.saturating_add(1);
            }
            next = next.saturating_add(1);
        }
        (count, (next < self.slots.count()).then_some(next))
    }
}
