// SPDX-License-Identifier: GPL-2.0

//! The assembly of a log: its table has the entries of all slots, and a batch assigns some anew.

use seglog::{
    batch::HEAD_BYTES,
    devices::Devices,
    fault::Fault,
    layout::{
        Layout,
        WORD_BYTES, //
    },
    record::Malformed,
    recovery::Recovery,
    segments::{
        Segment,
        Segments, //
    },
    table,
    Checksum, //
};

use super::super::{
    body::{
        assignments,
        TAGGED_BYTES, //
    },
    entry::{
        self,
        Entry,
        ENTRY_BYTES, //
    },
    index::Index,
    slot::{
        Memory,
        Slot, //
    },
};

/// The words of an entry.
const ENTRY_WORDS: usize = ENTRY_BYTES / WORD_BYTES;

/// Returns the slot, and the word of its entry.
const fn split(index: u64) -> (u64, usize) {
    let words = ENTRY_WORDS as u64;
    (index / words, (index % words) as usize)
}

fn word_of(entry: &Entry, word: usize) -> u64 {
    let mut each = entry.chunks_exact(WORD_BYTES);
    let bytes = each.nth(word).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The table of a log that is open: entries are those of the index.
pub(super) struct Words<'a, F> {
    pub(super) entry: F,
    /// The words of all entries.
    pub(super) entries: u64,
    pub(super) uses: &'a mut [u64],
}

impl<F: Fn(u32) -> Entry> table::Table for Words<'_, F> {
    fn word(&self, index: u64) -> u64 {
        let Some(segment) = index.checked_sub(self.entries) else {
            let (slot, word) = split(index);
            // CAST: A table has at most u32::MAX slots.
            return word_of(&(self.entry)(slot as u32), word);
        };
        self.uses.get(segment as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, index: u64, word: u64) {
        let segment = index.checked_sub(self.entries);
        if let Some(to) = segment.and_then(|segment| self.uses.get_mut(segment as usize)) {
            *to = word;
        }
    }
}

/// The table while a log is assembled.
pub struct Table<E, U> {
    /// The entries of all slots.
    pub entries: E,
    /// The words of segments.
    pub uses: U,
}

impl<E: Memory<Entry>, U: Memory<u64>> table::Table for Table<E, U> {
    fn word(&self, index: u64) -> u64 {
        let (slot, word) = split(index);
        let all = self.entries.as_ref();
        match all.get(slot as usize) {
            Some(entry) => word_of(entry, word),
            None => {
                let before = all.len().saturating_mul(ENTRY_WORDS) as u64;
                let uses = self.uses.as_ref();
                let segment = index.saturating_sub(before) as usize;
                uses.get(segment).copied().unwrap_or_default()
            }
        }
    }

    fn set(&mut self, index: u64, new: u64) {
        let (slot, word) = split(index);
        let all = self.entries.as_mut();
        let before = all.len().saturating_mul(ENTRY_WORDS) as u64;
        match all.get_mut(slot as usize) {
            Some(entry) => {
                let to = entry.chunks_exact_mut(WORD_BYTES).nth(word);
                if let Some(to) = to.and_then(<[u8]>::first_chunk_mut) {
                    *to = new.to_le_bytes();
                }
            }
            None => {
                let segment = index.saturating_sub(before) as usize;
                if let Some(to) = self.uses.as_mut().get_mut(segment) {
                    *to = new;
                }
            }
        }
    }
}

/// Loads the table, and follows the log: reads no block.
///
/// # Errors
///
/// Returns why the log cannot be used. Nothing was written.
pub fn walk<D: Devices, C: Checksum>(
    recovery: &mut Recovery<'_, D, C>,
    table: &mut Table<impl Memory<Entry>, impl Memory<u64>>,
) -> Result<(), Fault<D::Error>> {
    recovery.walk_by(table, |table: &mut Table<_, _>, _, column| {
        let body = column.get(HEAD_BYTES..).ok_or(Malformed)?;
        for (slot, entry) in assignments(body).map_err(|_| Malformed)? {
            let entries = table.entries.as_mut();
            *entries.get_mut(slot as usize).ok_or(Malformed)? = *entry;
        }
        Ok(())
    })
}

/// Makes slots of their entries; the index is [`restore`](Index::restore)d of them.
///
/// # Errors
///
/// Returns that an entry is none.
pub fn slots(entries: &[Entry], to: &mut [Slot]) -> Result<(), entry::Malformed> {
    for (entry, to) in entries.iter().zip(to) {
        *to = entry::slot(entry)?;
    }
    Ok(())
}

/// Counts the blocks that are live in each segment.
///
/// # Errors
///
/// Returns that an extent is in no segment, or a word of a segment is not possible.
pub fn segments<M: Memory<Segment>, S: Memory<Slot>, B: Memory<u32>>(
    memory: M,
    table: &impl table::Table,
    index: &Index<S, B>,
    layout: &Layout,
) -> Result<Segments<M>, Malformed> {
    let mut segments = Segments::known(memory, table, layout)?;
    for number in 0..index.slots().count() {
        let Some(extent) = index.slots().extent(number) else {
            continue;
        };
        let from = extent.stored.place.checked_sub(layout.segment(0));
        let segment = from.and_then(|from| from.checked_div(layout.segment_bytes()));
        let segment = segment.and_then(|segment| u32::try_from(segment).ok());
        let segment = segment.ok_or(Malformed)?;
        for _ in 0..extent.used.count() {
            let is_there = segments.add(segment, TAGGED_BYTES as u64);
            is_there.then_some(()).ok_or(Malformed)?;
        }
    }
    Ok(segments)
}
