// SPDX-License-Identifier: GPL-2.0

//! The log, as far as heads can be read: unlike an assembly it is not refused where it is damaged.

use anyhow::Result;
use seglog::{
    batch::{
        Head,
        Kind, //
    },
    cursor::Cursor,
    layout::Layout,
    members::{
        Members,
        MEMBERS, //
    },
    reading,
    record::{
        Record,
        Records, //
    },
    recovery::Recovery,
    superblock::{
        Start,
        Superblock, //
    },
    table::Table,
    ArrayTag, //
};

use crate::{
    checksum::Crc,
    media::Media, //
};

/// A record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its data column.
    pub column: usize,
    /// The byte of the column at which it begins.
    pub at: usize,
    /// The record.
    pub record: Record,
}

/// A batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its head.
    pub head: Head,
    /// The members that are read and have a whole column of it.
    pub whole: Members,
    /// The members that are read and have none, though it was written to them.
    pub lacking: Members,
    /// Data columns that no way gives.
    pub lost_columns: Vec<usize>,
    /// Records of the others.
    pub records: Vec<Listed>,
}

/// The log of some members of an array.
pub struct Log<'a> {
    media: &'a mut Media,
    layout: Layout,
    tag: ArrayTag,
    members: Members,
    start: Start,
    memory: [Vec<u8>; MEMBERS],
}

impl<'a> Log<'a> {
    /// Chooses where it starts, and the members that count: as an assembly by force does if there
    /// are enough of them, else the latest start of all.
    pub fn new(media: &'a mut Media, superblocks: &[Option<Superblock>; MEMBERS]) -> Option<Self> {
        let all = superblocks.iter().flatten();
        let newest = all.max_by_key(|s| s.start.generation)?;
        let (layout, tag) = (newest.layout, newest.tag);
        let units = layout.column_units_max() as usize;
        let bytes = units.saturating_mul(layout.unit_bytes());
        let mut memory = [(); MEMBERS].map(|()| vec![0; bytes]);
        let chosen = chosen(media, &mut memory);
        let (members, start) = chosen.unwrap_or((media.present(), newest.start));
        Some(Self {
            media,
            layout,
            tag,
            members,
            start,
            memory,
        })
    }

    /// Shows each batch in turn.
    ///
    /// # Errors
    ///
    /// Returns the error of `see`.
    pub fn follow(&mut self, mut see: impl FnMut(&Batch) -> Result<()>) -> Result<()> {
        let mut cursor = self.start.cursor;
        while let Some((batch, hash)) = self.next(&cursor) {
            see(&batch)?;
            cursor = cursor.behind(&batch.head, hash);
        }
        Ok(())
    }

    /// Returns the batch that follows: of those that fit the one that is whole, and of these the
    /// one of the latest incarnation.
    fn next(&mut self, cursor: &Cursor) -> Option<(Batch, u32)> {
        let mut best: Option<(bool, Head, u32, Members)> = None;
        for place in cursor.places() {
            let [unit, _, _] = &mut self.memory;
            let unit = unit.get_mut(..self.layout.unit_bytes())?;
            let with = (&self.layout, self.tag);
            let heads = reading::heads(self.media, (place, self.members), unit, with, &Crc);
            for (head, hash) in heads.into_iter().flatten() {
                if !cursor.fits(&head) {
                    continue;
                }
                let mut memory = self.memory.each_mut().map(Vec::as_mut_slice);
                let of = (&head, hash);
                let read = reading::columns(self.media, of, self.members, &mut memory, with, &Crc);
                let whole = read.ok()?.whole;
                let rank = (
                    whole.count() >= head.kind.columns_needed(),
                    head.incarnation,
                );
                let is_better = best
                    .as_ref()
                    .is_none_or(|(is_whole, best, ..)| rank > (*is_whole, best.incarnation));
                if is_better {
                    best = Some((rank.0, head, hash, whole));
                }
            }
        }
        let (_, head, hash, whole) = best?;
        Some((self.batch(&head, whole), hash))
    }

    /// Reads the records of a batch.
    fn batch(&mut self, head: &Head, whole: Members) -> Batch {
        let mut batch = Batch {
            head: *head,
            whole,
            lacking: head.used.and(self.members).minus(whole),
            lost_columns: Vec::new(),
            records: Vec::new(),
        };
        let layout = self.layout;
        for column in head.data_columns() {
            let [one, other, _] = &mut self.memory;
            let memory = [one.as_mut_slice(), other.as_mut_slice()];
            let of = (head, column);
            if !reading::data_column(self.media, of, self.members, memory, &layout, &Crc) {
                batch.lost_columns.push(column);
                continue;
            }
            let bytes = one.get(..head.column_bytes(&layout)).unwrap_or_default();
            let records = Records::new(head, bytes, &layout, &Crc).map_while(Result::ok);
            batch
                .records
                .extend(records.map(|(at, record, _)| Listed { column, at, record }));
        }
        batch
    }
}

/// A table of which nothing is kept: who is in sync does not need it.
struct NoTable;

impl Table for NoTable {
    fn word(&self, _: u64) -> u64 {
        0
    }

    fn set(&mut self, _: u64, _: u64) {}
}

/// Returns the members that an assembly by force takes, and its start; `None` if it is refused. It
/// asks the log where a slot may hide something, as the assembly does.
fn chosen(media: &mut Media, memory: &mut [Vec<u8>; MEMBERS]) -> Option<(Members, Start)> {
    let with = (media.present(), true);
    let columns = memory.each_mut().map(Vec::as_mut_slice);
    let mut recovery = Recovery::examine(media, with, columns, &Crc).ok()?;
    if recovery.asks_log() {
        // What is wrong with the log is listed.
        let _ = recovery.walk(&mut NoTable);
    }
    Some((recovery.in_sync(), *recovery.start()))
}

impl Batch {
    /// Whether an assembly of the members that are read could use it.
    pub fn counts(&self) -> bool {
        self.whole.count() >= self.head.kind.columns_needed()
    }

    /// Returns how it is kept.
    pub fn kind(&self) -> &'static str {
        match self.head.kind {
            Kind::Striped => "striped",
            Kind::Mirror => "mirrored",
        }
    }
}
