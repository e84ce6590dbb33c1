// SPDX-License-Identifier: GPL-2.0

//! Reads what is live in a segment, to be written again.
//!
//! Batches are read without the lock of the array, one IO after the other. Under the lock it is
//! then asked which of their records are live, and these go to a batch that begins before the lock
//! is left: what was written meanwhile is not covered by what is moved.

use core::ops::Range;

use seglog::{
    batch::{
        copy,
        Head, //
    },
    collect::{
        live,
        newest, //
    },
    devices::Devices,
    layout::{
        Layout,
        Place, //
    },
    members::Members,
    reading::{
        data_column,
        heads,
        parts_of_column,
        Parts, //
    },
    record::{
        Record,
        Records,
        BLOCKS_MAX, //
    },
    ArrayTag,
    Checksum, //
};

use super::{
    array::{
        Array,
        Memory, //
    },
    asking::{
        Patience,
        Wait, //
    },
    packing::RECORDS_MAX,
};

/// A segment that is collected. It counts as read meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    segment: u32,
    sequence: u64,
    /// The members in sync that have it.
    usable: Members,
    /// The unit up to which it was read.
    unit: u32,
    /// A member has not given what was written there.
    is_repaired: bool,
}

/// A record that was read.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    head: Head,
    column: usize,
    at: usize,
    record: Record,
    /// The first byte of its payload in the memory that it was read to.
    payload: usize,
}

/// The memory of a collector.
pub struct Stage<'a> {
    /// A column that is read: as long as the longest.
    pub column: &'a mut [u8],
    /// Column that rebuilds it: as long.
    pub other: &'a mut [u8],
    /// Payloads: at least as long as two columns.
    pub payloads: &'a mut [u8],
    /// The records: at least as many as two columns have of the shortest ones.
    pub records: &'a mut [Option<Staged>],
}

/// Result of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The records.
    pub records: usize,
    /// Columns of batches that no way gave: what is live in them cannot be moved.
    pub lost_columns: u32,
    /// The segment was read to its end.
    pub is_complete: bool,
    /// The array is being stopped: nothing of this is to be used.
    pub is_stopped: bool,
}

/// The members. Nothing of them is read any more when the array is being stopped: where a disk has
/// bad sectors it tries each for seconds, and a segment may be full of them. Nor is one waited for
/// that is late while the others have what is read.
struct Patiently<'a, D, F> {
    devices: &'a mut D,
    is_stopping: F,
    is_stopped: bool,
    usable: Members,
    patience: Patience,
    /// One that was waited for has given an error.
    has_failed: bool,
}

impl<D: Devices, F: Fn() -> bool> Devices for Patiently<'_, D, F> {
    type Error = ();

    fn bytes(&self, member: usize) -> u64 {
        self.devices.bytes(member)
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), ()> {
        self.is_stopped = self.is_stopped || (self.is_stopping)();
        if self.is_stopped {
            return Err(());
        }
        match self.patience.wait(member, self.usable) {
            Wait::Not => return Err(()),
            Wait::Briefly => {
                let soon = self.devices.read_soon(member, at, to);
                return soon.map_err(|_| self.patience.is_late(member));
            }
            Wait::Long => {}
        }
        let read = self.devices.read(member, at, to);
        read.map_err(|_| self.has_failed = true)
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], fua: bool) -> Result<(), ()> {
        self.devices.write(member, at, from, fua).map_err(|_| ())
    }

    fn flush(&mut self, member: usize) -> Result<(), ()> {
        self.devices.flush(member).map_err(|_| ())
    }

    fn xor_into(&self, to: &mut [u8], from: &[u8]) {
        self.devices.xor_into(to, from);
    }
}

/// The runs of live blocks that a record has at most.
pub const RUNS_MAX: usize = BLOCKS_MAX as usize / 2;

/// Returns the runs of a record's blocks that it assigns. Where some are not live any more, records
/// of the others are written instead of it: what is dead would take room for good.
pub fn runs(record: &Record) -> impl Iterator<Item = Range<u32>> + use<> {
    let record = *record;
    let count = record.count.min(BLOCKS_MAX);
    let mut next = 0;
    core::iter::from_fn(move || {
        let start = (next..count).find(|block| record.assigns(*block))?;
        let end = (start..count).find(|block| !record.assigns(*block));
        next = end.unwrap_or(count);
        Some(start..next)
    })
}

/// Returns the record of a run, with its codec and the bytes of its payload.
pub fn run_of(record: &Record, run: &Range<u32>, (codec, payload_bytes): (u8, u16)) -> Record {
    Record {
        index: record.index.saturating_add(run.start.into()),
        count: run.end.saturating_sub(run.start),
        codec,
        payload_bytes,
        skipped: 0,
    }
}

/// Whether records of `bytes` bytes, their heads included, are written instead of one: blocks that
/// were compressed together may take less room with those that are dead than without.
pub const fn is_gain(record: &Record, bytes: usize) -> bool {
    bytes < record.bytes()
}

impl Staged {
    /// Returns the record as it is to be written again; `None` if nothing of it is live. Asked for
    /// under the lock under which its batch begins.
    pub fn live<M: Memory>(&self, array: &Array<M>) -> Option<Record> {
        let at = (&self.head, self.column, self.at);
        live(
            &self.record,
            at,
            |index| array.latest(index),
            array.layout(),
        )
    }

    /// Returns where its payload is in the memory that it was read to.
    pub fn payload(&self) -> Range<usize> {
        let bytes = usize::from(self.record.payload_bytes);
        self.payload..self.payload.saturating_add(bytes)
    }
}

impl Victim {
    /// A segment, in a use of it, that these members have.
    pub(super) const fn new(
        (segment, sequence): (u32, u64),
        usable: Members,
        is_repaired: bool,
    ) -> Self {
        Self {
            segment,
            sequence,
            usable,
            unit: 0,
            is_repaired,
        }
    }

    /// Returns the segment.
    pub const fn segment(&self) -> u32 {
        self.segment
    }

    /// Whether it is collected as a member has not given what was written there.
    pub const fn is_repaired(&self) -> bool {
        self.is_repaired
    }

    /// Whether it was read to its end.
    pub(super) fn is_read(&self, layout: &Layout) -> bool {
        self.unit >= layout.parts().segment_units
    }

    /// Reads the batches that follow, as many as there is room for, while the array is not
    /// `is_stopping`: that is asked before each IO. Members that are late are waited for as
    /// `hedge_ms` says, see [`Patience`].
    pub fn load<D: Devices>(
        &mut self,
        (devices, is_stopping, hedge_ms): (&mut D, impl Fn() -> bool, u32),
        stage: &mut Stage<'_>,
        (layout, tag): (&Layout, ArrayTag),
        crc: &impl Checksum,
    ) -> Loaded {
        let devices = &mut Patiently {
            devices,
            is_stopping,
            is_stopped: false,
            usable: self.usable,
            patience: Patience::new(hedge_ms),
            has_failed: false,
        };
        let (mut loaded, mut bytes) = (Loaded::default(), 0);
        let units = layout.parts().segment_units;
        while self.unit < units && !devices.is_stopped {
            let place = Place {
                segment: self.segment,
                unit: self.unit,
            };
            devices.has_failed = false;
            let mut head = self.head(devices, stage, place, (layout, tag), crc);
            // Who was late may be the only one of the others that has a later one.
            if devices.has_failed && devices.patience.wait_for_all() {
                head = self.head(devices, stage, place, (layout, tag), crc);
            }
            let Some(head) = head else {
                self.unit = self.unit.saturating_add(1);
                continue;
            };
            let of_batch = head.column_bytes(layout).saturating_mul(2);
            let places = stage.records.len().saturating_sub(loaded.records);
            let has_room =
                stage.payloads.len().saturating_sub(bytes) >= of_batch && places >= RECORDS_MAX;
            if !has_room {
                break;
            }
            self.unit = self.unit.saturating_add(head.units.into());
            for column in head.data_columns() {
                let (of, before) = ((&head, column), (loaded, bytes));
                let mut has_all =
                    self.column(devices, stage, of, (&mut loaded, &mut bytes), layout, crc);
                if has_all.is_none() && devices.patience.wait_for_all() {
                    (loaded, bytes) = before;
                    has_all =
                        self.column(devices, stage, of, (&mut loaded, &mut bytes), layout, crc);
                }
                if has_all.is_none() {
                    loaded.lost_columns = loaded.lost_columns.saturating_add(1);
                }
            }
        }
        loaded.is_stopped = devices.is_stopped;
        loaded.is_complete = self.unit >= units;
        loaded
    }

    /// Reads the head of a batch at a place.
    fn head<D: Devices>(
        &self,
        devices: &mut D,
        stage: &mut Stage<'_>,
        place: Place,
        (layout, tag): (&Layout, ArrayTag),
        crc: &impl Checksum,
    ) -> Option<Head> {
        let unit = stage.column.get_mut(..layout.unit_bytes())?;
        let found = heads(devices, (place, self.usable), unit, (layout, tag), crc);
        newest(
            found.into_iter().flatten().map(|(head, _)| head),
            self.sequence,
        )
    }

    /// Reads a data column of a batch, by the first way that gives what its CRC says; else record
    /// by record, as two members may have lost different ones. `None` if some are lost.
    fn column<D: Devices>(
        &self,
        devices: &mut D,
        stage: &mut Stage<'_>,
        of: (&Head, usize),
        to: (&mut Loaded, &mut usize),
        layout: &Layout,
        crc: &impl Checksum,
    ) -> Option<()> {
        let bytes = of.0.column_bytes(layout);
        let one = stage.column.get_mut(..bytes)?;
        let other = stage.other.get_mut(..bytes)?;
        let payloads = &mut *stage.payloads;
        let memory = [&mut *one, &mut *other];
        if data_column(devices, of, self.usable, memory, layout, crc) {
            // The CRC of the body fits, so who wrote what is no record has broken a rule: an
            // assembly says so.
            let records = Records::new(of.0, one, layout, crc).map_while(Result::ok);
            put_aside(records, (payloads, stage.records), of, to);
            return Some(());
        }
        // There is still room for this column, which is not used before it was read.
        let from = payloads.len().checked_sub(bytes)?;
        let memory = [&mut *one, &mut *other, payloads.get_mut(from..)?];
        let has_all = parts_of_column(devices, of, self.usable, memory, layout, crc);
        let parts = Parts::new(of.0, one, layout, crc);
        put_aside(parts, (payloads, stage.records), of, to);
        has_all.then_some(())
    }
}

/// Notes the records of a column that was read, with their payloads.
fn put_aside<'a>(
    found: impl Iterator<Item = (usize, Record, &'a [u8])>,
    (payloads, records): (&mut [u8], &mut [Option<Staged>]),
    (head, column): (&Head, usize),
    (loaded, bytes): (&mut Loaded, &mut usize),
) {
    for (at, record, payload) in found {
        // What assigns zeroes has no place that is live.
        if payload.is_empty() {
            continue;
        }
        let end = bytes.saturating_add(payload.len());
        let (Some(to), Some(place)) = (
            payloads.get_mut(*bytes..end),
            records.get_mut(loaded.records),
        ) else {
            break;
        };
        copy(to, payload);
        *place = Some(Staged {
            head: *head,
            column,
            at,
            record,
            payload: *bytes,
        });
        *bytes = end;
        loaded.records = loaded.records.saturating_add(1);
    }
}
