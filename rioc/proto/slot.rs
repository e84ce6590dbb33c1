// SPDX-License-Identifier: GPL-2.0

//! The slots of the index: one table, in memory of its user, of objects, ranges and extents.
//!
//! A slot's number is its name everywhere: in the links between slots, and in the log. So an extent
//! with one range of one object costs two slots, of [`SLOT_BYTES`] each.

use super::span::ObjectId;

/// The number of no slot.
pub const NONE: u32 = u32::MAX;
/// The bytes of a slot at most.
pub const SLOT_BYTES: usize = 48;
/// The most uses that are counted: what was used so often stays for as many rounds of eviction as
/// it is not used again.
pub const USES_MAX: u8 = 3;
/// The bytes of memory for an extent with a range, at most.
pub const EXTENT_MEMORY_BYTES: usize = 128;

const _: () = assert!(size_of::<Slot>() <= SLOT_BYTES);
const _: () = assert!(2 * SLOT_BYTES <= EXTENT_MEMORY_BYTES);

/// The part of the life of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// The object has a name.
    Linked,
    /// A copy fills it, and it has no name yet.
    Hidden,
    /// Its name is gone, and its ranges go.
    Doomed,
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its name.
    pub id: ObjectId,
    /// Its size in bytes.
    pub size: u64,
    /// The root of the tree of its ranges.
    pub root: u32,
    /// The next object in its bucket, or of those that are doomed.
    pub next: u32,
    /// The blocks of its ranges: no two of them have one in common.
    pub blocks: u32,
    /// The part of its life.
    pub life: Life,
    /// Whether ranges are behind its end, as it was made shorter: it must not become longer before
    /// they are gone.
    pub is_shrinking: bool,
    /// The uses of it, less the looks of eviction.
    pub uses: u8,
    /// The blocks that its file is meant for where there is no range.
    pub backed: u32,
    /// Whether the file may have something behind these.
    pub is_cut: bool,
    /// Whether blocks of it are on their way to its file.
    pub is_leaving: bool,
    /// Whether there may be a file of its name, which goes with it.
    pub has_file: bool,
    /// Whether the last job of its file has failed, and the store has not come by it since.
    pub has_failed: bool,
}

/// The knowledge that the file of an object has of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InFile {
    /// Nothing.
    #[default]
    Dirty,
    /// The blocks are on their way, and may be there in part.
    Leaving,
    /// The blocks are there, and durable.
    Clean,
}

/// A range: blocks of an object that are blocks of an extent. Other blocks are holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The object.
    pub object: u32,
    /// The first block in the object.
    pub block: u32,
    /// The extent; [`NONE`] of zeroes over something else in the file.
    pub extent: u32,
    /// The first block in the extent.
    pub first: u8,
    /// The number of blocks: at least 1.
    pub blocks: u8,
    /// The subtree of the ranges before it.
    pub left: u32,
    /// The subtree of the ranges behind it.
    pub right: u32,
    /// The range before it that refers to the same extent.
    pub previous: u32,
    /// The range behind it that refers to the same extent.
    pub next: u32,
    /// The knowledge that the file of its object has of it.
    pub in_file: InFile,
}

impl Range {
    /// Returns one of these blocks, which is in no tree and no list yet.
    pub const fn new((object, block): (u32, u32), extent: u32, (first, blocks): (u8, u8)) -> Self {
        Self {
            object,
            block,
            extent,
            first,
            blocks,
            left: NONE,
            right: NONE,
            previous: NONE,
            next: NONE,
            in_file: InFile::Dirty,
        }
    }

    /// Returns the block behind its last one, in the object.
    pub const fn end(&self) -> u32 {
        self.block.saturating_add(self.blocks as u32)
    }
}

/// Blocks as a store has them. Both numbers are the store's, and mean nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The place of the first block.
    pub place: u64,
    /// The number that the store has beside each block, to tell it from what was there before.
    pub stamp: u32,
}

/// Some blocks of an extent: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Blocks(u32);

impl Blocks {
    /// Returns `count` blocks from `first` on.
    pub const fn of(first: u8, count: u8) -> Self {
        Self(below(count) << (first as u32 & 31))
    }

    /// Whether a block is one of them.
    pub const fn contains(self, block: u8) -> bool {
        self.0 >> (block as u32 & 31) & 1 != 0
    }

    /// Returns how many there are.
    pub const fn count(self) -> u8 {
        // CAST: At most 32.
        self.0.count_ones() as u8
    }

    /// Returns the blocks of either.
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the blocks that `other` does not have.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many there are before a block.
    pub(super) const fn before(self, block: u8) -> u8 {
        Self(self.0 & below(block)).count()
    }
}

/// Returns the bits below one.
const fn below(bit: u8) -> u32 {
    match 1u32.checked_shl(bit as u32) {
        Some(bit) => bit.wrapping_sub(1),
        None => u32::MAX,
    }
}

/// An extent: blocks that were stored together. Their content never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The place of the blocks.
    pub stored: Stored,
    /// The number of ranges that refer to it.
    pub references: u32,
    /// The first one of these.
    pub ranges: u32,
    /// The reads of it that are in flight.
    pub pins: u32,
    /// The blocks whose room is taken: that of others was given back.
    pub used: Blocks,
    /// The number of blocks.
    pub blocks: u8,
    /// The reads of it, less the looks of who drops what is in files.
    pub uses: u8,
}

/// The last operation of a lane of a client, as a log keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// The client, by a name that it has for longer than a session.
    pub client: [u64; 2],
    /// The word of a [`Ticket`](super::ticket::Ticket); 0 before the first one.
    pub word: u64,
    /// The number of the client's incarnation, of 56 bits.
    pub incarnation: u64,
    /// The next slot of a lane, of any client.
    pub next: u32,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Nothing; the next free slot.
    Free(u32),
    /// An object.
    Object(Object),
    /// A range.
    Range(Range),
    /// An extent.
    Extent(Extent),
    /// The last operation of a lane.
    Ticket(Kept),
}

/// Memory of the user for a table.
pub trait Memory<T>: AsRef<[T]> + AsMut<[T]> {}

impl<T, M: AsRef<[T]> + AsMut<[T]>> Memory<T> for M {}

/// The table of slots.
#[derive(Clone, Debug)]
pub struct Slots<S> {
    all: S,
    free: u32,
    free_count: u32,
}

impl<S: Memory<Slot>> Slots<S> {
    /// Makes a table of free slots in `memory`. What it has beyond [`NONE`] slots is not used.
    pub fn new(mut memory: S) -> Self {
        let count = count_of(memory.as_ref());
        for (number, slot) in (0..count).zip(memory.as_mut()) {
            let next = number.saturating_add(1);
            *slot = Slot::Free(if next < count { next } else { NONE });
        }
        Self {
            all: memory,
            free: if count > 0 { 0 } else { NONE },
            free_count: count,
        }
    }

    /// Takes slots as they are in `memory`: a list of the free ones is made.
    pub(super) fn restored(mut memory: S) -> Self {
        let count = count_of(memory.as_ref());
        let (mut free, mut free_count) = (NONE, 0u32);
        for number in (0..count).rev() {
            if let Some(Slot::Free(next)) = memory.as_mut().get_mut(number as usize) {
                *next = free;
                free = number;
                free_count = free_count.saturating_add(1);
            }
        }
        Self {
            all: memory,
            free,
            free_count,
        }
    }

    /// Returns the number of slots.
    pub fn count(&self) -> u32 {
        count_of(self.all.as_ref())
    }

    /// Returns how many are free.
    pub const fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Returns a slot; `None` if there is no such one.
    pub fn get(&self, number: u32) -> Option<&Slot> {
        self.all.as_ref().get(number as usize)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.all.as_mut().get_mut(number as usize)
    }

    /// Uses a free slot for something; returns its number, or `None` if none is free.
    pub(super) fn take(&mut self, content: Slot) -> Option<u32> {
        let number = self.free;
        let slot = self.get_mut(number)?;
        let Slot::Free(next) = *slot else {
            return None;
        };
        *slot = content;
        self.free = next;
        self.free_count = self.free_count.saturating_sub(1);
        Some(number)
    }

    /// Makes a slot free again.
    pub(super) fn give_back(&mut self, number: u32) {
        let free = self.free;
        if let Some(slot) = self.get_mut(number) {
            *slot = Slot::Free(free);
            self.free = number;
            self.free_count = self.free_count.saturating_add(1);
        }
    }

    /// Returns the object in a slot.
    pub fn object(&self, number: u32) -> Option<&Object> {
        match self.get(number) {
            Some(Slot::Object(object)) => Some(object),
            _ => None,
        }
    }

    pub(super) fn object_mut(&mut self, number: u32) -> Option<&mut Object> {
        match self.get_mut(number) {
            Some(Slot::Object(object)) => Some(object),
            _ => None,
        }
    }

    /// Returns the range in a slot.
    pub fn range(&self, number: u32) -> Option<&Range> {
        match self.get(number) {
            Some(Slot::Range(range)) => Some(range),
            _ => None,
        }
    }

    pub(super) fn range_mut(&mut self, number: u32) -> Option<&mut Range> {
        match self.get_mut(number) {
            Some(Slot::Range(range)) => Some(range),
            _ => None,
        }
    }

    /// Returns the last operation of a lane, in a slot.
    pub fn ticket(&self, number: u32) -> Option<&Kept> {
        match self.get(number) {
            Some(Slot::Ticket(kept)) => Some(kept),
            _ => None,
        }
    }

    pub(super) fn ticket_mut(&mut self, number: u32) -> Option<&mut Kept> {
        match self.get_mut(number) {
            Some(Slot::Ticket(kept)) => Some(kept),
            _ => None,
        }
    }

    /// Returns the extent in a slot.
    pub fn extent(&self, number: u32) -> Option<&Extent> {
        match self.get(number) {
            Some(Slot::Extent(extent)) => Some(extent),
            _ => None,
        }
    }

    pub(super) fn extent_mut(&mut self, number: u32) -> Option<&mut Extent> {
        match self.get_mut(number) {
            Some(Slot::Extent(extent)) => Some(extent),
            _ => None,
        }
    }
}

fn count_of(slots: &[Slot]) -> u32 {
    u32::try_from(slots.len()).unwrap_or(NONE)
}
