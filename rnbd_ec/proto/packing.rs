// SPDX-License-Identifier: GPL-2.0

//! Assigns records to the columns of a batch.

use seglog::{
    batch::{
        Head,
        Kind,
        HEAD_BYTES, //
    },
    layout::Layout,
    members::{
        DATA_COLUMNS,
        MEMBERS, //
    },
    record::{
        Entry,
        Record, //
    },
    Checksum, //
};

use super::geometry::UNIT_BYTES;

/// The records of a batch at most.
pub const RECORDS_MAX: usize = 256;
/// The bytes of the records of a batch that is mirrored: a lone small write is two member IOs.
pub const MIRROR_BYTES_MAX: usize = 8 << 10;

/// Returns the units of the longest batch, of which `left` are left in the segment that is written:
/// it fills the segment, unless a record may be longer than what is left.
pub fn units_of_batch(layout: &Layout, left: u32) -> u32 {
    let bytes = (left as usize).saturating_mul(layout.unit_bytes());
    if bytes >= HEAD_BYTES.saturating_add(Record::bytes_of(UNIT_BYTES)) {
        left
    } else {
        layout.column_units_max()
    }
}

/// Returns the bytes of records that fill the longest batch.
pub fn record_bytes_max(layout: &Layout) -> usize {
    let column_bytes = (layout.column_units_max() as usize).saturating_mul(layout.unit_bytes());
    DATA_COLUMNS.saturating_mul(column_bytes.saturating_sub(HEAD_BYTES))
}

/// A record of a batch that is made.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// The data column.
    column: usize,
    /// The byte of the column at which it begins.
    at: usize,
    record: Record,
}

impl Default for Packed {
    fn default() -> Self {
        Self {
            column: 0,
            at: 0,
            record: Record {
                index: 0,
                count: 0,
                codec: 0,
                payload_bytes: 0,
                skipped: 0,
            },
        }
    }
}

impl Packed {
    /// Returns the record.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the column that it is in when its batch has a head.
    fn column(&self, head: &Head) -> usize {
        match head.kind {
            Kind::Striped => self.column,
            // Its batch has one body.
            Kind::Mirror => head.data_columns().start,
        }
    }

    /// Returns the entry of its first block.
    pub fn entry(&self, head: &Head, layout: &Layout) -> Entry {
        Entry::of(head, self.column(head), self.at, &self.record, layout)
    }

    /// Whether it is assigned in the pass over a column: those of the first one count first, as an
    /// assembly has it.
    pub fn is_of(&self, head: &Head, column: usize) -> bool {
        self.column(head) == column
    }

    /// Whether it assigns the entry of a block of the disk.
    pub fn assigns(&self, index: u64) -> bool {
        let block = index.checked_sub(self.record.index);
        block.is_some_and(|block| {
            block < self.record.count.into()
                // CAST: Below the count.
                && self.record.assigns(block as u32)
        })
    }
}

/// Content of a batch that is made.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// The bytes of a column at most.
    bytes_max: usize,
    /// The bytes of each column so far, the head included.
    used: [usize; DATA_COLUMNS],
    records: usize,
}

/// A place for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The data column.
    pub column: usize,
    /// The byte of the column at which it begins.
    pub at: usize,
}

impl Packing {
    /// Returns an empty one, of at most `units` units.
    pub fn new(layout: &Layout, units: u32) -> Self {
        let units = layout.column_units_max().min(units) as usize;
        Self {
            bytes_max: units.saturating_mul(layout.unit_bytes()),
            used: [HEAD_BYTES; DATA_COLUMNS],
            records: 0,
        }
    }

    /// Whether it has no record.
    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns how many records it has.
    pub const fn records(&self) -> usize {
        self.records
    }

    /// Finds room for a record: in the first column as long as the batch may be a mirror, else in
    /// the one that has less. `None` if the batch is full.
    pub fn add(&mut self, record: &Record, packed: &mut [Packed]) -> Option<Room> {
        let [first, second] = self.used;
        let bytes = record.bytes();
        let is_mirror =
            first.saturating_add(bytes) <= MIRROR_BYTES_MAX + HEAD_BYTES && second == HEAD_BYTES;
        let column = usize::from(!is_mirror && second < first);
        let used = self.used.get_mut(column)?;
        let at = *used;
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes_max)?;
        *packed.get_mut(self.records)? = Packed {
            column,
            at,
            record: *record,
        };
        *used = end;
        self.records = self.records.saturating_add(1);
        Some(Room { column, at })
    }

    /// Returns how the batch is kept.
    pub fn kind(&self) -> Kind {
        let [_, second] = self.used;
        if second == HEAD_BYTES && !self.is_empty() {
            Kind::Mirror
        } else {
            Kind::Striped
        }
    }

    /// Returns the bytes of a data column that are used, its head included.
    pub fn used(&self, column: usize) -> usize {
        self.used.get(column).copied().unwrap_or_default()
    }

    /// Returns the units of each column.
    pub fn units(&self, layout: &Layout) -> u16 {
        let [first, second] = self.used;
        let unit = layout.unit_bytes();
        let end = first.max(second).saturating_add(unit.saturating_sub(1));
        let units = end.checked_div(unit).unwrap_or(usize::MAX);
        u16::try_from(units).unwrap_or(u16::MAX)
    }
}

/// The memory of the columns of a batch, each as long as the longest one: data columns, parity.
pub struct Columns<C> {
    /// The columns.
    pub columns: [C; MEMBERS],
}

impl<C: AsRef<[u8]> + AsMut<[u8]>> Columns<C> {
    /// Writes a record where there is room for it, of the batch with number `sequence`.
    pub fn write(
        &mut self,
        room: Room,
        (record, payload): (&Record, &[u8]),
        (layout, sequence): (&Layout, u64),
        crc: &impl Checksum,
    ) -> Option<usize> {
        let column = self.columns.get_mut(room.column)?.as_mut();
        let to = column.get_mut(room.at..)?;
        record.write(to, payload, (layout, sequence), crc)
    }

    /// Ends the columns of a batch: zeroes what is left of its units, makes the parity by `xor`,
    /// which XORs the second slice into the first, which is as long. Both begin with the head.
    /// Returns the CRCs of the bodies.
    pub fn finish(
        &mut self,
        packing: &Packing,
        layout: &Layout,
        crc: &impl Checksum,
        xor: impl Fn(&mut [u8], &[u8]),
    ) -> [u32; MEMBERS] {
        let bytes = usize::from(packing.units(layout)).saturating_mul(layout.unit_bytes());
        for (number, column) in self.columns.iter_mut().take(DATA_COLUMNS).enumerate() {
            let rest = column.as_mut().get_mut(packing.used(number)..bytes);
            rest.unwrap_or_default().fill(0);
        }
        let [first, second, parity] = &mut self.columns;
        let body = |column: &[u8]| {
            let body = column.get(HEAD_BYTES..bytes);
            crc.crc32c(body.unwrap_or_default())
        };
        let one = body(first.as_ref());
        if packing.kind() == Kind::Mirror {
            return [one; MEMBERS];
        }
        if let (Some(to), Some(first), Some(second)) = (
            parity.as_mut().get_mut(..bytes),
            first.as_ref().get(..bytes),
            second.as_ref().get(..bytes),
        ) {
            to.copy_from_slice(first);
            xor(to, second);
        }
        [one, body(second.as_ref()), body(parity.as_ref())]
    }

    /// Returns the column whose body a member's column of a batch has.
    pub fn of(&self, head: &Head, column: usize) -> &[u8] {
        let column = match head.kind {
            Kind::Striped => column,
            Kind::Mirror => 0,
        };
        self.columns
            .get(column)
            .map_or(&[], |column| column.as_ref())
    }
}
