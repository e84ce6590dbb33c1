// SPDX-License-Identifier: GPL-2.0

//! Sizes: of the segments, of the disk, of the memory that it takes.

use core::fmt;

use super::array::CLOSED_MAX;
use seglog::{
    batch::HEAD_BYTES,
    collect::reserve,
    layout::{
        Layout,
        Misfit,
        Parts,
        COLUMN_BYTES_MAX,
        SEGMENTS_MIN,
        WORD_BYTES, //
    },
    members::{
        DATA_COLUMNS,
        MEMBERS, //
    },
    record::{
        Record,
        BLOCKS_MAX, //
    },
    segments::Segment, //
};

/// The bytes of a block of the disk.
pub const BLOCK_BYTES: usize = 4096;
/// The blocks of a unit of compression, which is aligned to as many.
pub const UNIT_BLOCKS: u32 = BLOCKS_MAX;
/// The bytes of a unit of compression.
pub const UNIT_BYTES: usize = BLOCK_BYTES * UNIT_BLOCKS as usize;
/// The blocks of the longest write or read: 128 KiB.
pub const REQUEST_BLOCKS_MAX: u32 = 32;

/// The bytes of a segment on each member, if members have at least as many as 256 of them.
const SEGMENT_BYTES_MAX: u64 = 2 << 20;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENTS_WANTED: u64 = 256;
/// The fewest segments: with fewer, most of them would be kept free.
const SEGMENTS_WANTED_MIN: u64 = 32;
const _: () = assert!(SEGMENTS_WANTED_MIN >= SEGMENTS_MIN as u64);
/// The eighths that are promised of what segments can hold: with less room to collect in, each
/// write costs more of others.
const PROMISED_EIGHTHS: u64 = 7;
/// Segments beside the reserve that hold nothing for good: the one that is written, the next one,
/// the victim of the collector, and those that a crash or a change of members may have closed.
const SEGMENTS_IN_USE: u64 = 5;
/// Most times of what it can hold without compression that a disk may promise.
const OVERCOMMIT_MAX: u64 = 16;

/// Properties of a device that is to be a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size of the device in bytes.
    pub bytes: u64,
    /// The smallest IO in bytes.
    pub logical_block_bytes: u32,
    /// The smallest write without reading in bytes.
    pub physical_block_bytes: u32,
}

/// The reason why members make no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The blocks of a member are longer than those of the disk.
    Blocks {
        /// The member.
        member: usize,
        /// The bytes of its blocks.
        bytes: u32,
    },
    /// The smallest member is too small for an array.
    TooSmall {
        /// The member.
        member: usize,
        /// Bytes of the device.
        bytes: u64,
    },
    /// More was asked for than may be promised, in bytes.
    Size {
        /// Bytes that were asked for.
        asked: u64,
        /// The most that may be.
        most: u64,
    },
    /// The layout is not possible.
    Layout(Misfit),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks { member, bytes } => write!(
                f,
                "member {member} has blocks of {bytes} bytes: at most {BLOCK_BYTES} are supported"
            ),
            Self::TooSmall { member, bytes } => write!(
                f,
                "member {member} has {bytes} bytes, too few for {SEGMENTS_WANTED_MIN} segments of \
                 {SEGMENT_BYTES_MIN}: give larger ones"
            ),
            Self::Size { asked, most } => write!(
                f,
                "size={asked} is not between a block and {most} bytes, {OVERCOMMIT_MAX} times \
                 what the members hold"
            ),
            Self::Layout(misfit) => misfit.fmt(f),
        }
    }
}

/// The reason why a device cannot take the place of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Too few bytes, or blocks that are longer than the units that are written.
    Blocks {
        /// The device.
        shape: Shape,
        /// The bytes that are needed.
        end_bytes: u64,
        /// The bytes of a unit.
        unit_bytes: usize,
    },
    /// Physical blocks that are longer: power that fails during a write could damage the units
    /// beside it, which were flushed before.
    Tears {
        /// The bytes of its physical blocks.
        bytes: u32,
        /// The bytes of a unit.
        unit_bytes: usize,
    },
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks {
                shape,
                end_bytes,
                unit_bytes,
            } => write!(
                f,
                "has {} bytes in blocks of {}, and needs {end_bytes} in blocks of at most \
                 {unit_bytes}",
                shape.bytes, shape.logical_block_bytes
            ),
            Self::Tears { bytes, unit_bytes } => write!(
                f,
                "has physical blocks of {bytes} bytes, and the array writes {unit_bytes} at a \
                 time: when power fails, what was flushed beside them could be lost"
            ),
        }
    }
}

/// Returns the bytes of a unit of which no write damages another one on a device, though it is cut
/// off: of longer physical blocks than those of the disk it is not known what they do.
fn unit_bytes(shape: &Shape) -> usize {
    if shape.logical_block_bytes <= 512 && shape.physical_block_bytes <= 512 {
        512
    } else {
        BLOCK_BYTES
    }
}

/// Whether power that fails during a write of an array could damage, on this device, what was
/// flushed before.
pub fn may_tear(shape: &Shape, layout: &Layout) -> bool {
    unit_bytes(shape) > layout.unit_bytes()
}

/// Checks that a device can take the place of a member of an array.
///
/// # Errors
///
/// Returns why it cannot.
pub fn check_place(shape: &Shape, layout: &Layout) -> Result<(), NoPlace> {
    let unit_bytes = layout.unit_bytes();
    if shape.bytes < layout.end_bytes() || shape.logical_block_bytes as usize > unit_bytes {
        return Err(NoPlace::Blocks {
            shape: *shape,
            end_bytes: layout.end_bytes(),
            unit_bytes,
        });
    }
    if may_tear(shape, layout) {
        let bytes = shape.physical_block_bytes;
        return Err(NoPlace::Tears { bytes, unit_bytes });
    }
    Ok(())
}

/// Returns the layout of a new array, of `size` bytes or as large as it can be without running out
/// of room with data of any kind.
///
/// # Errors
///
/// Returns why the members make none.
pub fn layout(members: &[Shape; MEMBERS], size: Option<u64>) -> Result<Layout, Unfit> {
    let mut each = members.iter().enumerate();
    let large = each.find(|(_, m)| m.logical_block_bytes as usize > BLOCK_BYTES);
    if let Some((member, shape)) = large {
        let bytes = shape.logical_block_bytes;
        return Err(Unfit::Blocks { member, bytes });
    }
    // CAST: At most 4096.
    let unit_bytes = members.iter().map(unit_bytes).max().unwrap_or(BLOCK_BYTES) as u32;
    let smallest = members.iter().enumerate().min_by_key(|(_, m)| m.bytes);
    let (member, bytes) = smallest.map_or((0, 0), |(member, shape)| (member, shape.bytes));
    let wanted = (bytes / SEGMENTS_WANTED)
        .checked_ilog2()
        .unwrap_or_default();
    let segment_bytes = 1u64
        .checked_shl(wanted)
        .unwrap_or_default()
        .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    let mut segments = bytes.checked_div(segment_bytes).unwrap_or_default();
    loop {
        if segments < SEGMENTS_WANTED_MIN {
            return Err(Unfit::TooSmall { member, bytes });
        }
        let parts = Parts {
            unit_bytes,
            // CAST: At most 4096 units.
            segment_units: (segment_bytes >> unit_bytes.trailing_zeros()) as u32,
            segments: u32::try_from(segments).unwrap_or(u32::MAX),
            page_bytes: BLOCK_BYTES as u32,
            entries: 1,
        };
        let fewest = Layout::new(parts).map_err(Unfit::Layout)?;
        let entries = entries(&fewest, size)?;
        let layout = Layout::new(Parts { entries, ..parts }).map_err(Unfit::Layout)?;
        let end = layout.end_bytes();
        if end <= bytes {
            return Ok(layout);
        }
        let excess = end.saturating_sub(bytes).checked_div(segment_bytes);
        segments = segments.saturating_sub(excess.unwrap_or_default().saturating_add(1));
    }
}

/// The bytes of a block that is not compressed and has a record of its own, as it may when those
/// beside it were written again.
const RECORD_BYTES: usize = Record::bytes_of(BLOCK_BYTES);

/// Returns the blocks that a segment has room for however little they can be compressed.
fn segment_blocks(layout: &Layout) -> u64 {
    const RECORDS: usize = (COLUMN_BYTES_MAX - HEAD_BYTES) / RECORD_BYTES;
    let batches = layout.segment_bytes() / COLUMN_BYTES_MAX as u64;
    batches
        .saturating_mul(RECORDS as u64)
        .saturating_mul(DATA_COLUMNS as u64)
}

/// Returns the blocks that segments hold however little they can be compressed.
fn held(layout: &Layout) -> u64 {
    let kept = (reserve(layout).saturating_add(CLOSED_MAX) as u64).saturating_add(SEGMENTS_IN_USE);
    let of_data = u64::from(layout.parts().segments).saturating_sub(kept);
    of_data.saturating_mul(segment_blocks(layout)) / 8 * PROMISED_EIGHTHS
}

/// Returns the bytes of records, heads included, for which there is always room; `None` if there is
/// room for all that the disk promises.
pub fn held_bytes(layout: &Layout) -> Option<u64> {
    is_overcommitted(layout).then(|| held(layout).saturating_mul(RECORD_BYTES as u64))
}

/// Returns the share of a segment in these. With as many live bytes there is always a segment that
/// has at most these, and what is moved from it leaves room, as segments can be packed better.
pub fn segment_bytes_held(layout: &Layout) -> u64 {
    let bytes = segment_blocks(layout).saturating_mul(RECORD_BYTES as u64);
    (bytes.saturating_mul(PROMISED_EIGHTHS) / 8).saturating_add(1)
}

fn entries(layout: &Layout, size: Option<u64>) -> Result<u64, Unfit> {
    let held = held(layout);
    let Some(asked) = size else {
        return Ok(held.max(1));
    };
    let most = held.saturating_mul(OVERCOMMIT_MAX);
    let entries = asked / BLOCK_BYTES as u64;
    if entries == 0 || entries > most {
        let most = most.saturating_mul(BLOCK_BYTES as u64);
        return Err(Unfit::Size { asked, most });
    }
    Ok(entries)
}

/// Whether the disk promises more than its members hold without compression.
pub fn is_overcommitted(layout: &Layout) -> bool {
    layout.parts().entries > held(layout)
}

/// Returns the sectors of the disk.
pub fn capacity_sectors(layout: &Layout) -> u64 {
    layout
        .parts()
        .entries
        .saturating_mul(BLOCK_BYTES as u64 / 512)
}

/// Returns the bytes of memory that grow with the size: the table and the segments.
pub fn table_bytes(layout: &Layout) -> u64 {
    let words = layout.words().saturating_mul(WORD_BYTES as u64);
    let segments = u64::from(layout.parts().segments).saturating_mul(size_of::<Segment>() as u64);
    words.saturating_add(segments)
}
