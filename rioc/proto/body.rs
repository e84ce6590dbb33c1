// SPDX-License-Identifier: GPL-2.0

//! The body of a batch of the log: blocks of its operations, and the entries that they assign.
//!
//! ```text
//! head, 16 B | tag, 8 B | block | tag | block | ... | slot, 4 B | entry, 32 B | slot | entry | ...
//! ```
//!
//! A batch is there as a whole or not at all, and the log proves its body with one CRC. So the
//! operations of a batch need no heads of their own: the entries are those that the slots have
//! after all of them. A block that is read alone is proven by its tag: the CRC of its bytes, and
//! the stamp of its extent, which no other batch and no other place has.

use seglog::Checksum;
use zerocopy::{
    little_endian::{
        U32,
        U64, //
    },
    FromBytes,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    entry::{
        self,
        Entry,
        Malformed, //
    },
    slot::{
        Memory,
        Slot,
        Stored, //
    },
    span::{
        BLOCK_BYTES,
        IO_BLOCKS_MAX, //
    },
};

/// The bytes before the first block.
pub const BODY_HEAD_BYTES: usize = 16;
/// The bytes of a block with its tag.
pub const TAGGED_BYTES: usize = size_of::<Tag>() + BLOCK_BYTES as usize;
/// The bytes of a slot's number with its entry.
pub const ASSIGNMENT_BYTES: usize = size_of::<Assignment>();
/// The slots that one write changes at most: it may replace a range and an extent for each block.
pub const WRITE_CHANGES_MAX: usize = 2 * IO_BLOCKS_MAX + 6;
/// The slots that one operation changes at most.
pub const CHANGES_MAX: usize = 144;
/// The bytes of the longest body for which there is always room.
pub const BODY_BYTES_MAX: usize = (120 << 10) - 96;

const VERSION: u32 = 1;

const _: () = assert!(
    BODY_HEAD_BYTES + IO_BLOCKS_MAX * TAGGED_BYTES + WRITE_CHANGES_MAX * ASSIGNMENT_BYTES
        <= BODY_BYTES_MAX
);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: U32,
    /// The byte at which the entries begin.
    offset: U32,
    count: U32,
    reserved: U32,
}
const _: () = assert!(size_of::<Head>() == BODY_HEAD_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Tag {
    sum: U32,
    stamp: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Assignment {
    slot: U32,
    entry: Entry,
}
const _: () = assert!(ASSIGNMENT_BYTES == 36);

/// Returns where a block of an extent is, with its tag.
pub const fn place_of(stored: &Stored, block: u8) -> u64 {
    let skipped = (block as u64).saturating_mul(TAGGED_BYTES as u64);
    stored.place.saturating_add(skipped)
}

/// Returns the bytes that so many blocks, and so many slots that change, take of a body.
pub const fn bytes_of(blocks: usize, changes: usize) -> usize {
    blocks
        .saturating_mul(TAGGED_BYTES)
        .saturating_add(changes.saturating_mul(ASSIGNMENT_BYTES))
}

/// Checks a block that was read, with its tag, from [`place_of`]; returns its CRC and its bytes.
///
/// # Errors
///
/// Returns that it is not the block of this extent, or is damaged.
pub fn block<'a>(
    bytes: &'a [u8],
    stored: &Stored,
    crc: &impl Checksum,
) -> Result<(u32, &'a [u8]), Malformed> {
    let (sum, block) = block_unread(bytes, stored)?;
    let is_right = sum == crc.crc32c(block);
    is_right.then_some((sum, block)).ok_or(Malformed)
}

/// Does so with a block whose bytes another CRC has proven, or are proven by who reads them next:
/// what a client has sent with a wrong CRC stays wrong, and is moved like others.
///
/// # Errors
///
/// Returns that it is not the block of this extent.
pub fn block_unread<'a>(bytes: &'a [u8], stored: &Stored) -> Result<(u32, &'a [u8]), Malformed> {
    let bytes = bytes.get(..TAGGED_BYTES).ok_or(Malformed)?;
    let (tag, block) = Tag::ref_from_prefix(bytes).map_err(|_| Malformed)?;
    let is_right = tag.stamp.get() == stored.stamp;
    is_right.then_some((tag.sum.get(), block)).ok_or(Malformed)
}

/// A body that is filled. Blocks come first, from the front; the slots that have changed are
/// collected, and their entries are written at the end.
pub struct Body<B, C> {
    to: B,
    /// The place of the first byte, and the number of the batch.
    origin: (u64, u64),
    /// The end of the blocks.
    used: usize,
    changed: C,
    count: usize,
}

/// A moment of a body, to which it can go back when an operation is refused.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl<B: Memory<u8>, C: Memory<u32>> Body<B, C> {
    /// Begins the body of batch `sequence` at a place of the log, in memory of any content.
    /// `changed` has room for the slots.
    pub fn new(to: B, (place, sequence): (u64, u64), changed: C) -> Self {
        Self {
            to,
            origin: (place, sequence),
            used: BODY_HEAD_BYTES,
            changed,
            count: 0,
        }
    }

    /// Whether there is room for an operation with so many blocks, and so many slots that change.
    pub fn has_room(&self, blocks: usize, changes: usize) -> bool {
        let slots = self.count.saturating_add(changes);
        let bytes = self.bytes().saturating_add(bytes_of(blocks, changes));
        bytes <= self.to.as_ref().len() && slots <= self.changed.as_ref().len()
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns a block that was put, with its tag, from [`place_of`] on; `None` of another place.
    pub fn at(&self, place: u64) -> Option<&[u8]> {
        let (origin, _) = self.origin;
        let at = usize::try_from(place.checked_sub(origin)?).ok()?;
        let end = at
            .checked_add(TAGGED_BYTES)
            .filter(|end| *end <= self.used)?;
        self.to.as_ref().get(at..end)
    }

    /// Returns how many blocks were put since a moment.
    pub fn blocks_since(&self, mark: Mark) -> usize {
        self.used.saturating_sub(mark.0) / TAGGED_BYTES
    }

    /// Returns this moment. Until something has changed it can go back to it.
    pub const fn mark(&self) -> Mark {
        Mark(self.used)
    }

    /// Goes back: the blocks since then are no part of it.
    pub fn go_back(&mut self, mark: Mark) {
        self.used = mark.0.min(self.used);
    }

    /// Adds the blocks of an extent, each with its CRC; returns where they are. `None` if there is
    /// too little room, or the CRCs are not as many: nothing was added.
    pub fn put<'b>(
        &mut self,
        blocks: impl Iterator<Item = (u32, &'b [u8])>,
        crc: &impl Checksum,
    ) -> Option<Stored> {
        let (place, sequence) = self.origin;
        let place = place.saturating_add(self.used as u64);
        let origin = [U64::new(place), U64::new(sequence)];
        let stamp = crc.crc32c(origin.as_bytes());
        let mut used = self.used;
        for (sum, block) in blocks {
            let to = self.to.as_mut().get_mut(used..)?;
            let to = to.get_mut(..TAGGED_BYTES)?;
            let tag = Tag {
                sum: U32::new(sum),
                stamp: U32::new(stamp),
            };
            tag.write_to_prefix(to).ok()?;
            let to = to.get_mut(size_of::<Tag>()..)?;
            if to.len() != block.len() {
                return None;
            }
            for (to, from) in to.iter_mut().zip(block) {
                *to = *from;
            }
            used = used.saturating_add(TAGGED_BYTES);
        }
        self.used = used;
        Some(Stored { place, stamp })
    }

    /// A slot has changed. Its user has asked whether there is room.
    pub fn change(&mut self, slot: u32) {
        let known = self.changed.as_ref().get(..self.count);
        let known = known.unwrap_or_default();
        if known.contains(&slot) {
            return;
        }
        if let Some(to) = self.changed.as_mut().get_mut(self.count) {
            *to = slot;
            self.count = self.count.saturating_add(1);
        }
    }

    /// Returns how many bytes it has so far.
    pub fn bytes(&self) -> usize {
        self.used
            .saturating_add(self.count.saturating_mul(ASSIGNMENT_BYTES))
    }

    /// Ends the body with the entries of the slots, as they are after all its operations; returns
    /// how many bytes of its memory are used. `None` if there is too little room.
    pub fn finish(&mut self, entry: impl Fn(u32) -> Entry) -> Option<usize> {
        let mut used = self.used;
        for slot in self.changed.as_ref().iter().take(self.count) {
            let assignment = Assignment {
                slot: U32::new(*slot),
                entry: entry(*slot),
            };
            let to = self.to.as_mut().get_mut(used..)?;
            assignment.write_to_prefix(to).ok()?;
            used = used.saturating_add(ASSIGNMENT_BYTES);
        }
        let head = Head {
            version: U32::new(VERSION),
            // CAST: Below the bytes of a batch.
            offset: U32::new(self.used as u32),
            count: U32::new(self.count as u32),
            reserved: U32::ZERO,
        };
        head.write_to_prefix(self.to.as_mut()).ok()?;
        Some(used)
    }

    /// Returns its memory, as it is.
    pub fn memory(&mut self) -> &mut B {
        &mut self.to
    }

    /// Ends its life; returns its memory.
    pub fn take(self) -> (B, C) {
        (self.to, self.changed)
    }
}

/// Returns the slots that a body assigns, with their entries; none of a body of zeroes, as the
/// first batch of an assembly has.
///
/// # Errors
///
/// Returns that it is not the body of a batch of this version.
pub fn assignments(body: &[u8]) -> Result<impl Iterator<Item = (u32, &Entry)> + Clone, Malformed> {
    let (head, _) = Head::ref_from_prefix(body).map_err(|_| Malformed)?;
    let is_empty = head.as_bytes().iter().all(|byte| *byte == 0);
    let offset = head.offset.get() as usize;
    let bytes = (head.count.get() as usize).checked_mul(ASSIGNMENT_BYTES);
    let end = bytes.and_then(|bytes| offset.checked_add(bytes));
    let is_body = head.version.get() == VERSION
        && head.reserved.get() == 0
        && offset
            .checked_sub(BODY_HEAD_BYTES)
            .map(|data| data % TAGGED_BYTES)
            == Some(0);
    let range = match end {
        _ if is_empty => 0..0,
        Some(end) if is_body => offset..end,
        _ => return Err(Malformed),
    };
    let bytes = body.get(range).ok_or(Malformed)?;
    let all = <[Assignment]>::ref_from_bytes(bytes).map_err(|_| Malformed)?;
    Ok(all.iter().map(|one| (one.slot.get(), &one.entry)))
}

/// Assigns what a body assigns to slots that will be
/// [`restored`](super::index::Index::restore).
///
/// # Errors
///
/// Returns that it is no body, or has an entry that is none, or one of a slot that is not there.
pub fn assign(slots: &mut [Slot], body: &[u8]) -> Result<(), Malformed> {
    for (number, entry) in assignments(body)? {
        let slot = slots.get_mut(number as usize).ok_or(Malformed)?;
        *slot = entry::slot(entry)?;
    }
    Ok(())
}
