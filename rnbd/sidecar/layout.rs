// SPDX-License-Identifier: GPL-2.0

//! The places of data blocks and PI blocks on the device.
//!
//! A segment has the data blocks of whole groups, without a gap, and their PI blocks behind them.
//! A device that grows gets one more segment in the new space; nothing is moved. The numbers of
//! the data blocks run on from segment to segment.

use core::fmt;

use super::{
    group::{
        self,
        GROUP_BLOCKS, //
    },
    tuple::REFERENCE_BITS, //
};

/// The maximum number of segments: a device can grow that many times less one.
pub const SEGMENTS_MAX: usize = 16;

/// The minimum and maximum number of slots of the journal.
pub const SLOTS_MIN: u32 = 4;
/// See [`SLOTS_MIN`].
pub const SLOTS_MAX: u32 = 1024;

/// Segments start at a multiple of this number of blocks (1 MiB), so that data are as well aligned
/// on the device as they are for its users.
const ALIGNMENT_BLOCKS: u64 = 256;

/// The block of the superblock.
pub const SUPERBLOCK: u64 = 0;
/// The first block of the journal.
pub const JOURNAL: u64 = 1;
/// The block of record 1, of each journal: it has more than one slot.
pub const FIRST_RECORD: u64 = JOURNAL + 1;

/// Part of a device: data blocks, and their PI blocks behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The first block on the device.
    pub start: u64,
    /// The number of groups; not 0.
    pub groups: u64,
}

impl Segment {
    /// The largest segment between two blocks of the device; `None` if there is no room for a
    /// group.
    fn between(from: u64, end: u64) -> Option<Self> {
        let start = from.checked_next_multiple_of(ALIGNMENT_BLOCKS)?;
        let groups = end.checked_sub(start)? / (GROUP_BLOCKS + 1);
        (groups != 0).then_some(Self { start, groups })
    }

    /// The number of data blocks; `None` if it is out of range.
    fn data_blocks(&self) -> Option<u64> {
        self.groups.checked_mul(GROUP_BLOCKS)
    }

    /// The first block of the PI blocks.
    fn pi_blocks(&self) -> Option<u64> {
        self.start.checked_add(self.data_blocks()?)
    }

    /// The first block behind the segment.
    fn end(&self) -> Option<u64> {
        self.pi_blocks()?.checked_add(self.groups)
    }
}

/// The reason why a layout is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The device has no room for a group of data, or for one more when it has grown.
    TooSmall,
    /// The device has more blocks than a reference can number.
    TooLarge,
    /// The journal has fewer or more slots than is permitted.
    Slots,
    /// The segments overlap each other, the journal or the copy of the superblock, are not aligned,
    /// or are none.
    Segments,
    /// The device has grown as often as it can.
    TooManySegments,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooSmall => "there is no room for 1 MiB of data with its sidecar",
            Self::TooLarge => "the device has 2^48 blocks or more",
            Self::Slots => "the journal has fewer than 4 or more than 1024 slots",
            Self::Segments => "the segments overlap or are not aligned",
            Self::TooManySegments => "the device has grown 15 times, and cannot grow again",
        })
    }
}

/// The layout of a device.
///
/// # Invariants
///
/// All blocks are below `device_blocks`, which is at most 2^48. Journal, segments and the copy of
/// the superblock do not overlap, and are in this order. There are 1 to [`SEGMENTS_MAX`] segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    device_blocks: u64,
    slots: u32,
    segments: [Segment; SEGMENTS_MAX],
    count: usize,
}

impl Layout {
    /// Lays out a device of `device_blocks` blocks that is formatted, with `slots` slots in the
    /// journal.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be formatted so.
    pub fn new(device_blocks: u64, slots: u32) -> Result<Self, Misfit> {
        let from = JOURNAL.saturating_add(slots.into());
        let segment = Segment::between(from, device_blocks.saturating_sub(1));
        Self::from_parts(device_blocks, slots, &[segment.ok_or(Misfit::TooSmall)?])
    }

    /// Checks a layout that a superblock describes.
    ///
    /// # Errors
    ///
    /// Returns which invariant does not hold.
    pub fn from_parts(
        device_blocks: u64,
        slots: u32,
        segments: &[Segment],
    ) -> Result<Self, Misfit> {
        if device_blocks > 1 << REFERENCE_BITS {
            return Err(Misfit::TooLarge);
        }
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&slots) {
            return Err(Misfit::Slots);
        }
        let mut stored = [Segment::default(); SEGMENTS_MAX];
        let mut free = JOURNAL.saturating_add(slots.into());
        if segments.len() > SEGMENTS_MAX {
            return Err(Misfit::TooManySegments);
        }
        for (to, from) in stored.iter_mut().zip(segments) {
            let is_aligned = from.start % ALIGNMENT_BLOCKS == 0;
            if from.start < free || from.groups == 0 || !is_aligned {
                return Err(Misfit::Segments);
            }
            free = from.end().ok_or(Misfit::Segments)?;
            *to = *from;
        }
        if segments.is_empty() || free >= device_blocks {
            return Err(Misfit::Segments);
        }
        // INVARIANT: Each segment starts behind the one before, and the last one ends before the
        // last block.
        Ok(Self {
            device_blocks,
            slots,
            segments: stored,
            count: segments.len(),
        })
    }

    /// Returns the least number of blocks that the device must have to grow.
    pub const fn grown_blocks_min(&self) -> u64 {
        // A group, its PI block, and the copy of the superblock.
        const LEAST: u64 = GROUP_BLOCKS + 2;
        // The device has at most 2^48 blocks.
        let parts = self.device_blocks.div_ceil(ALIGNMENT_BLOCKS);
        parts.saturating_mul(ALIGNMENT_BLOCKS).saturating_add(LEAST)
    }

    /// Returns the layout after the device has grown to `device_blocks`, with one segment more.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot use the new space.
    pub fn grown(&self, device_blocks: u64) -> Result<Self, Misfit> {
        let mut segments = self.segments;
        // Behind the old copy of the superblock, which stays until the new superblock is written.
        let segment = Segment::between(self.device_blocks, device_blocks.saturating_sub(1));
        let free = segments.get_mut(self.count);
        *free.ok_or(Misfit::TooManySegments)? = segment.ok_or(Misfit::TooSmall)?;
        let segments = segments.get(..=self.count).unwrap_or_default();
        Self::from_parts(device_blocks, self.slots, segments)
    }

    /// Returns the number of blocks of the device.
    pub const fn device_blocks(&self) -> u64 {
        self.device_blocks
    }

    /// Returns the number of slots of the journal.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the segments.
    pub fn segments(&self) -> &[Segment] {
        self.segments.get(..self.count).unwrap_or_default()
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u64 {
        let groups = |sum: u64, segment: &Segment| sum.saturating_add(segment.groups);
        self.segments().iter().fold(0, groups)
    }

    /// Returns the number of data blocks.
    pub fn data_blocks(&self) -> u64 {
        self.groups().saturating_mul(GROUP_BLOCKS)
    }

    /// Returns the block of the copy of the superblock.
    pub const fn copy(&self) -> u64 {
        self.device_blocks.saturating_sub(1)
    }

    /// Returns the block of the journal record `sequence`.
    pub fn record(&self, sequence: u64) -> u64 {
        // `slots` is not 0.
        let slot = sequence.checked_rem(self.slots.into()).unwrap_or(0);
        JOURNAL.saturating_add(slot)
    }

    /// Returns the segment of a group, and the group's number in it.
    fn find(&self, group: u64) -> Option<(&Segment, u64)> {
        let mut first = 0u64;
        for segment in self.segments() {
            let number = group.checked_sub(first)?;
            if number < segment.groups {
                return Some((segment, number));
            }
            first = first.checked_add(segment.groups)?;
        }
        None
    }

    /// Returns the block of a group's PI block; `None` if there is no such group.
    pub fn pi_block(&self, group: u64) -> Option<u64> {
        let (segment, number) = self.find(group)?;
        segment.pi_blocks()?.checked_add(number)
    }

    /// Returns the block of a data block, and the number of data blocks from there on that have
    /// consecutive blocks; `None` if there is no such data block.
    pub fn data(&self, block: u64) -> Option<(u64, u64)> {
        let (group, index) = group::place(block);
        let (segment, number) = self.find(group)?;
        let offset = group::block_at(number, index);
        let left = segment.data_blocks()?.checked_sub(offset)?;
        Some((segment.start.checked_add(offset)?, left))
    }
}
