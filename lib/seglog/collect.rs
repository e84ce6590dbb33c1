// SPDX-License-Identifier: GPL-2.0

//! Collecting: what is live in a segment is written again, as any write is, until the segment has
//! nothing that is live.
//!
//! The user takes [`Segments::victim`](super::segments::Segments::victim), which counts as read
//! while it does so. It reads the batches of that use of the segment, column by column
//! ([`source::columns`](super::source::columns)), and begins batches with the records that
//! [`live`] gives, with the purpose [`Purpose::Collect`]. The log's order alone decides what a
//! block is, so a recovery need not know that something was moved.

use super::{
    batch::Head,
    layout::Layout,
    record::{
        Entry,
        Record,
        BLOCKS_MAX, //
    },
};

/// The purpose of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A batch of what is written: segments for collecting are left.
    Write,
    /// A batch of what goes on when there is no room for writes. The same are left, but writes of a
    /// user may leave more.
    Reserved,
    /// A batch of what is moved: one segment is left, for the next assembly.
    Collect,
}

/// The fewest segments that writes leave free. With two, what is live in one segment can be moved
/// however little room the end of the log has, as one is kept for the next assembly; a third may be
/// used up by a crash or a change of members meanwhile.
pub const RESERVE_MIN: u32 = 3;
/// The most segments that writes leave free.
pub const RESERVE_MAX: u32 = 64;
/// The segments of which one is left free, between these.
const SEGMENTS_OF_RESERVE: u32 = 64;

impl Purpose {
    /// Returns how many free segments a batch leaves, beside the one that it names.
    pub fn leaves(self, layout: &Layout) -> usize {
        match self {
            Self::Write | Self::Reserved => reserve(layout),
            Self::Collect => 1,
        }
    }
}

/// Returns how many segments writes leave free.
pub fn reserve(layout: &Layout) -> usize {
    let share = layout.parts().segments / SEGMENTS_OF_RESERVE;
    share.clamp(RESERVE_MIN, RESERVE_MAX) as usize
}

/// Returns the batch at a place of a segment that is collected: of the heads that members have
/// there, in this use of the segment, the one of the latest incarnation. A mirror leaves on the
/// third member what an incarnation that was begun again has written there; what a later one has
/// begun there that was cut off, an assembly has written over.
pub fn newest(heads: impl Iterator<Item = Head>, segment_sequence: u64) -> Option<Head> {
    let of_use = heads.filter(|head| head.segment_sequence == segment_sequence);
    of_use.max_by_key(|head| head.incarnation)
}

/// Returns a record as it is to be written again: without those of its blocks that are elsewhere.
/// `None` if nothing of it is live.
///
/// `at` is the byte of the column at which it was found. `latest` returns what the entry will be
/// when all batches that have begun are acknowledged: a batch that is begun later goes before
/// them, so what they assign must not be moved. It is asked under the lock under which the batch
/// with the record begins.
pub fn live(
    record: &Record,
    (head, column, at): (&Head, usize, usize),
    latest: impl Fn(u64) -> Entry,
    layout: &Layout,
) -> Option<Record> {
    let here = Entry::of(head, column, at, record, layout);
    if here == Entry::ZEROES {
        return None;
    }
    let mut skipped = 0;
    let blocks = record.count.min(BLOCKS_MAX);
    for block in 0..blocks {
        let index = record.index.saturating_add(block.into());
        if !record.assigns(block) || latest(index) != here.with_block(block) {
            skipped |= 1 << block;
        }
    }
    let all = (1 << blocks) - 1;
    (skipped != all).then_some(Record { skipped, ..*record })
}
