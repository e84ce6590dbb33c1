// SPDX-License-Identifier: GPL-2.0

//! The layout of a new log on a device: how many segments it has, and how many slots.

use core::fmt;

use seglog::{
    layout::{
        Layout,
        Misfit,
        Parts,
        WORD_BYTES, //
    },
    segments::Segment,
};

use super::{
    body::TAGGED_BYTES,
    entry::{
        Entry,
        ENTRY_BYTES, //
    },
    log::SEGMENTS_MIN,
    slot::{
        Slot,
        NONE, //
    },
};

/// The longest blocks of a device, and the bytes of a page of the table.
const BLOCK_BYTES_MAX: u32 = 4096;
/// The bytes of a segment, if the device has at least as many as 256 of them.
const SEGMENT_BYTES_MAX: u64 = 2 << 20;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENTS_WANTED: u64 = 256;
/// The fewest segments: with fewer, most of them would be kept free.
const SEGMENTS_WANTED_MIN: u64 = 32;
const _: () = assert!(SEGMENTS_WANTED_MIN >= SEGMENTS_MIN as u64);
/// The slots beside those of blocks.
const SLOTS_BESIDE: u64 = 4096;

/// The reason why a device is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its blocks are longer than those of objects.
    Blocks(u32),
    /// Too few bytes.
    TooSmall(u64),
    /// The layout is not possible.
    Layout(Misfit),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(bytes) => write!(
                f,
                "it has blocks of {bytes} bytes: at most {BLOCK_BYTES_MAX} are supported"
            ),
            Self::TooSmall(bytes) => write!(
                f,
                "it has {bytes} bytes, too few for {SEGMENTS_WANTED_MIN} segments of \
                 {SEGMENT_BYTES_MIN}: give a larger one"
            ),
            Self::Layout(misfit) => misfit.fmt(f),
        }
    }
}

/// Returns the slots for so many blocks: each may be an extent with a range of its own, and some
/// have copies.
pub fn slots_of(blocks: u64) -> u64 {
    let slots = blocks.saturating_mul(5) / 2;
    slots
        .saturating_add(SLOTS_BESIDE)
        .min(u64::from(NONE).saturating_sub(1))
}

/// Returns the layout of a new log on a device of `bytes`, whose smallest IO, and smallest write
/// without reading, have so many.
///
/// # Errors
///
/// Returns why it cannot be used.
pub fn layout(bytes: u64, (logical, physical): (u32, u32)) -> Result<Layout, Unfit> {
    if logical > BLOCK_BYTES_MAX {
        return Err(Unfit::Blocks(logical));
    }
    let has_sectors = logical <= 512 && physical <= 512;
    let unit_bytes = if has_sectors { 512 } else { BLOCK_BYTES_MAX };
    let wanted = bytes / SEGMENTS_WANTED;
    let wanted = 1u64.checked_shl(wanted.checked_ilog2().unwrap_or_default());
    let wanted = wanted.unwrap_or_default();
    let segment_bytes = wanted.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    let mut segments = bytes.checked_div(segment_bytes).unwrap_or_default();
    loop {
        if segments < SEGMENTS_WANTED_MIN {
            return Err(Unfit::TooSmall(bytes));
        }
        let blocks = segments.saturating_mul(segment_bytes) / TAGGED_BYTES as u64;
        let parts = Parts {
            unit_bytes,
            // CAST: At most 4096 units.
            segment_units: (segment_bytes >> unit_bytes.trailing_zeros()) as u32,
            segments: u32::try_from(segments).unwrap_or(u32::MAX),
            page_bytes: BLOCK_BYTES_MAX,
            entries: slots_of(blocks).saturating_mul((ENTRY_BYTES / WORD_BYTES) as u64),
        };
        let layout = Layout::single(parts).map_err(Unfit::Layout)?;
        let end = layout.end_bytes();
        if end <= bytes {
            return Ok(layout);
        }
        let excess = end.saturating_sub(bytes).checked_div(segment_bytes);
        segments = segments.saturating_sub(excess.unwrap_or_default().saturating_add(1));
    }
}

/// Returns the slots of a log; `None` if it is not one of objects.
pub fn slots(layout: &Layout) -> Option<u32> {
    let words = (ENTRY_BYTES / WORD_BYTES) as u64;
    let entries = layout.parts().entries;
    let is_of_objects = layout.is_single() && entries % words == 0;
    u32::try_from(entries / words)
        .ok()
        .filter(|slots| is_of_objects && *slots < NONE)
}

/// Returns the bytes of memory that grow with a log: slots, what is read of them at an assembly,
/// and segments.
pub fn memory_bytes(layout: &Layout) -> u64 {
    let slot = (size_of::<Slot>() + size_of::<Entry>()) as u64;
    let slots = u64::from(slots(layout).unwrap_or_default()).saturating_mul(slot);
    let segment = (size_of::<Segment>() + WORD_BYTES) as u64;
    slots.saturating_add(u64::from(layout.parts().segments).saturating_mul(segment))
}
