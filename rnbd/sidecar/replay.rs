// SPDX-License-Identifier: GPL-2.0

//! The replay of the journal when a device is opened.
//!
//! The caller, in this order:
//!
//! 1. flushes the device, so that what is read below stays what it is;
//! 2. reads the ring, and finds the [`Live`] records in it;
//! 3. sorts their entries by group ([`Live::list`]), and has nothing more to do if the journal is
//!    [`clean`](Live::clean);
//! 4. for each group reads the PI block and the blocks that entries mention, sets the tuples that
//!    [`settle`] returns, and writes the PI block back;
//! 5. flushes;
//! 6. writes the mark [`Live::mark`] with FUA: now the journal is empty.
//!
//! A crash in between does no harm: only the data and the records decide, and both are unchanged
//! before the mark is durable.

use core::iter;

use super::{
    group,
    layout::Layout,
    record::{
        Entry,
        Head,
        Record, //
    },
    tuple::{
        Meaning,
        Seal,
        Tuple, //
    },
    Block,
    Checksum, //
};

/// The records that a replay needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    newest: Head,
}

impl Live {
    /// Finds the records in the blocks of the ring; `None` if there is no record, which means that
    /// the journal is destroyed, as a formatted device has one.
    pub fn find(ring: &[Block], layout: &Layout, seal: &Seal, crc: &impl Checksum) -> Option<Self> {
        let slots = (0u64..).zip(ring);
        let heads = slots.filter_map(|(slot, block)| {
            let head = Record::parse(block, layout, seal, crc)?.head();
            // A record in another slot was misdirected.
            let is_here = head.sequence.checked_rem(layout.slots().into()) == Some(slot);
            is_here.then_some(head)
        });
        let newest = heads.max_by_key(|head| head.sequence)?;
        // A sequence number that cannot be counted on was not written by us.
        (newest.sequence < u64::MAX - u64::from(layout.slots())).then_some(Self { newest })
    }

    /// Returns the mark that ends the replay.
    pub const fn mark(&self, layout: &Layout) -> Head {
        let sequence = self.newest.sequence.saturating_add(1);
        Head::of_mark(sequence, layout.device_blocks())
    }

    /// Returns the sequence number of the newest record if it is a mark that needs no record
    /// before it, and `list` is empty: then there is nothing to replay, and nothing to write.
    pub fn clean(&self, list: &[Mention]) -> Option<u64> {
        let is_clean = self.newest.tail == self.newest.sequence && list.is_empty();
        is_clean.then_some(self.newest.sequence)
    }

    /// Returns the records in the order of their sequence numbers; `None` for one that is missing.
    /// Each of them was durable once, so a missing one was damaged later.
    pub fn records<'a>(
        &self,
        ring: &'a [Block],
        layout: &'a Layout,
        seal: &'a Seal,
        crc: &'a impl Checksum,
    ) -> impl Iterator<Item = Option<Record<'a>>> {
        (self.newest.tail..=self.newest.sequence).map(move |sequence| {
            let slot = sequence.checked_rem(layout.slots().into())?;
            let block = ring.get(usize::try_from(slot).ok()?)?;
            let record = Record::parse(block, layout, seal, crc)?;
            (record.head().sequence == sequence).then_some(record)
        })
    }

    /// Lists the entries by group, and in a group in the order in which they were written; returns
    /// those that were found (`list` has room for [`ENTRIES_MAX`](super::record::ENTRIES_MAX)
    /// times the number of slots), and the number of missing records.
    pub fn list<'l>(
        &self,
        ring: &[Block],
        layout: &Layout,
        seal: &Seal,
        crc: &impl Checksum,
        list: &'l mut [Mention],
    ) -> (&'l [Mention], u32) {
        let mut missing = 0u32;
        let mut count = 0usize;
        for record in self.records(ring, layout, seal, crc) {
            let Some(record) = record else {
                missing = missing.saturating_add(1);
                continue;
            };
            let is_flushed = record.head().sequence < self.newest.flushed;
            let free = list.get_mut(count..).unwrap_or_default();
            for (to, entry) in free.iter_mut().zip(record.entries()) {
                // CAST: at most 1024 records of 100 entries.
                let order = count as u32;
                *to = Mention {
                    order,
                    is_flushed,
                    entry,
                };
                count = count.saturating_add(1);
            }
        }
        let used = list.get_mut(..count).unwrap_or_default();
        used.sort_unstable_by_key(|mention| (mention.entry.group(), mention.order));
        (used, missing)
    }
}

/// An entry of a live record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mention {
    /// Its place in the order in which the entries were written.
    order: u32,
    /// A flush has covered its data.
    is_flushed: bool,
    /// The entry.
    entry: Entry,
}

impl Mention {
    /// Returns the group of the entry.
    pub fn group(&self) -> u64 {
        self.entry.group()
    }
}

/// Returns the mentions of each group.
pub fn by_group(list: &[Mention]) -> impl Iterator<Item = &[Mention]> {
    let mut left = list;
    iter::from_fn(move || {
        let (first, mut rest) = left.split_first()?;
        while let Some((next, more)) = rest.split_first() {
            if next.group() != first.group() {
                break;
            }
            rest = more;
        }
        let (mentions, others) = left.split_at_checked(left.len().saturating_sub(rest.len()))?;
        left = others;
        Some(mentions)
    })
}

/// The result of a replay for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The last write is there.
    Newest,
    /// A write before it is there, or what was there before them.
    Older,
    /// The data are of no write: a torn one.
    Torn,
    /// The data are older than what was flushed: the device has lost a write.
    Stale,
    /// The data cannot be read, so it is not known.
    Unreadable,
}

/// A tuple that a block has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The tuple.
    pub tuple: Tuple,
    /// The number of writes that came after it.
    pub writes: u32,
    /// A write that came after it was flushed: if its data are there, the device has lost that one.
    pub is_past: bool,
}

/// The tuples that a block has had, the newest first.
fn candidates<'a>(
    mentions: &'a [Mention],
    block: u64,
    seal: &'a Seal,
) -> impl Iterator<Item = Candidate> + 'a {
    let of_block = move |mention: &'a Mention| Some((mention, mention.entry.after(block, seal)?));
    let newest_first = mentions.iter().rev().filter_map(of_block);
    let mut is_past = false;
    (0..u32::MAX)
        .zip(newest_first)
        .flat_map(move |(writes, (mention, after))| {
            let new = Candidate {
                tuple: after,
                writes,
                is_past,
            };
            is_past |= mention.is_flushed;
            // That of the write before, unless that one has failed and left another one. (Of a
            // run an entry has the first block's only, which is foreign to the others.)
            let old = Candidate {
                tuple: mention.entry.old,
                writes: writes.saturating_add(1),
                is_past,
            };
            [new, old]
        })
}

/// Returns the tuple of a data block by the entries of its group; `None` if none mentions it.
/// `crc` reads the block and returns its CRC, `None` if it cannot be read.
pub fn settle(
    mentions: &[Mention],
    block: u64,
    seal: &Seal,
    crc: impl FnOnce() -> Option<u64>,
) -> Option<(Tuple, Found)> {
    let mut candidates = candidates(mentions, block, seal).peekable();
    candidates.peek()?;
    Some(choose(candidates, block, seal, crc))
}

/// Returns the tuple of a data block, which is the newest of those that it has had that fits the
/// data, or *lost*; `newest_first` has them. `crc` reads the block and returns its CRC, `None` if
/// it cannot be read: then nothing is known of the data, and nothing that could be is believed.
///
/// That the block has no data fits everything; it is believed before one write only, since a second
/// one has waited for the data of the first (`store`).
pub fn choose(
    newest_first: impl IntoIterator<Item = Candidate>,
    block: u64,
    seal: &Seal,
    crc: impl FnOnce() -> Option<u64>,
) -> (Tuple, Found) {
    let mut read = Some(crc);
    let mut known = None;
    let mut nothing = Found::Torn;
    for candidate in newest_first {
        let meaning = seal.meaning(&candidate.tuple, block);
        let needs_data = match meaning {
            Meaning::Lost | Meaning::Foreign => continue,
            // A discard: the data do not count.
            Meaning::Unwritten => candidate.writes != 0,
            Meaning::Data { .. } => true,
        };
        if needs_data {
            known = known.or_else(|| read.take().and_then(|read| read()));
            if known.is_none() {
                return (seal.lost(block), Found::Unreadable);
            }
        }
        match (meaning, candidate.is_past) {
            (Meaning::Data { guard, .. }, _) if known != Some(guard) => {}
            (Meaning::Data { .. }, true) => nothing = Found::Stale,
            (Meaning::Data { .. }, false) => return (candidate.tuple, candidate.found()),
            (_, is_past) if is_past || candidate.writes > 1 => {}
            _ => return (candidate.tuple, candidate.found()),
        }
    }
    (seal.lost(block), nothing)
}

impl Candidate {
    /// Returns the outcome for the block if the data of this tuple are there.
    const fn found(&self) -> Found {
        match self.writes {
            0 => Found::Newest,
            _ => Found::Older,
        }
    }
}

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks whose last write is there.
    pub newest: u64,
    /// Blocks with an older write.
    pub older: u64,
    /// Blocks with a torn write.
    pub torn: u64,
    /// Blocks whose data are older than what was flushed, and are lost.
    pub stale: u64,
    /// Blocks that could not be read, and are lost.
    pub unreadable: u64,
    /// Records that are missing.
    pub missing: u32,
    /// Slots of the journal that could not be read, and count as empty.
    pub slots: u32,
    /// PI blocks that could not be read: of their tuples only those of records are known.
    pub pi_blocks: u64,
}

impl Outcome {
    /// Returns whether nothing is lost, or may be.
    pub const fn is_whole(&self) -> bool {
        let is_read = self.unreadable == 0 && self.slots == 0 && self.pi_blocks == 0;
        is_read && self.torn == 0 && self.stale == 0 && self.missing == 0
    }

    fn count(&mut self, found: Found) {
        let counter = match found {
            Found::Newest => &mut self.newest,
            Found::Older => &mut self.older,
            Found::Torn => &mut self.torn,
            Found::Stale => &mut self.stale,
            Found::Unreadable => &mut self.unreadable,
        };
        *counter = counter.saturating_add(1);
    }

    /// Sets the tuples of a group in its PI block by its mentions; `crc` reads a data block and
    /// returns its CRC.
    pub fn settle_group(
        &mut self,
        mentions: &[Mention],
        pi_block: &mut Block,
        seal: &Seal,
        mut crc: impl FnMut(u64) -> Option<u64>,
    ) {
        let Some(group) = mentions.first().map(Mention::group) else {
            return;
        };
        for index in 0..=group::Index::MAX {
            let block = group::block_at(group, index);
            if let Some((tuple, found)) = settle(mentions, block, seal, || crc(block)) {
                group::set_tuple(pi_block, index, &tuple);
                self.count(found);
            }
        }
    }
}
