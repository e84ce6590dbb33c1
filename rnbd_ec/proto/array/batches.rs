// SPDX-License-Identifier: GPL-2.0

//! Batches: they begin, are written by the user, and are acknowledged.

use seglog::{
    batch::{
        Head,
        HEAD_BYTES, //
    },
    collect::Purpose,
    log::{
        Wait,
        WINDOW, //
    },
    record::Entry,
    table::note_batch,
    table::Table,
    Checksum, //
};

use super::{
    Actions,
    Array,
    Batch,
    Memory, //
};
use crate::proto::packing::{
    units_of_batch,
    Packed,
    Packing,
    Room,
    RECORDS_MAX, //
};

/// A batch that begins: the user writes the column of each member in `head.used`, and each end of
/// these writes is an [`Io::Column`](super::Io::Column).
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The head.
    pub head: Head,
    /// Bytes of the batch.
    pub bytes: [u8; HEAD_BYTES],
    /// Byte of its member at which each column begins.
    pub at: u64,
    /// The slot of the batch until it is acknowledged.
    pub slot: usize,
}

impl<M: Memory> Array<M> {
    /// Returns the number of the next batch, which its records have.
    pub fn next_sequence(&self) -> u64 {
        self.log.next_sequence()
    }

    /// Returns an empty batch, to be filled and begun before the lock is left. It ends with the
    /// segment that is written; if `begins_segment` it may be longer, and then begins the next one.
    ///
    /// While a segment is collected, writes leave a slot, unless a batch of who collects is in
    /// flight: the engine begins them in the run that has freed it, and who collects gets the lock
    /// between runs only.
    ///
    /// # Errors
    ///
    /// Returns what is waited for.
    pub fn pack(&mut self, purpose: Purpose, begins_segment: bool) -> Result<Packing, Wait> {
        if self.is_stopped() {
            return Err(Wait::Stopped);
        }
        if !self.log.failing().is_empty() {
            return Err(Wait::Epoch);
        }
        let slots = self.batches.iter();
        let free = slots.filter(|batch| batch.is_none()).count();
        let left = match purpose {
            Purpose::Write | Purpose::Reserved => self.slots_of_who_collects(),
            Purpose::Collect => 0,
        };
        if free <= left {
            return Err(Wait::Window);
        }
        self.free(purpose).ok_or(Wait::Segment)?;
        let left = if begins_segment {
            0
        } else {
            self.log.units_left()
        };
        Ok(Packing::new(
            &self.layout,
            units_of_batch(&self.layout, left),
        ))
    }

    /// Returns the slots that writes leave to who collects: one, if it has none.
    fn slots_of_who_collects(&self) -> usize {
        let is_moved = |batch: &Batch| batch.purpose == Purpose::Collect;
        let has_one = self.batches.iter().flatten().any(is_moved);
        usize::from(self.collecting.is_some() && !has_one)
    }

    fn free_slot(&self) -> Option<usize> {
        self.batches.iter().position(Option::is_none)
    }

    fn packed_mut(&mut self, slot: usize) -> &mut [Packed] {
        let start = slot.saturating_mul(RECORDS_MAX);
        let all = self.packed.as_mut();
        all.get_mut(start..start.saturating_add(RECORDS_MAX))
            .unwrap_or_default()
    }

    fn packed(&self, slot: usize, records: usize) -> &[Packed] {
        let start = slot.saturating_mul(RECORDS_MAX);
        let all = self.packed.as_ref();
        all.get(start..start.saturating_add(records))
            .unwrap_or_default()
    }

    /// Finds room for a record in the batch that is filled; `None` if it is full.
    pub fn add(&mut self, packing: &mut Packing, record: &seglog::record::Record) -> Option<Room> {
        let slot = self.free_slot()?;
        packing.add(record, self.packed_mut(slot))
    }

    /// Begins the batch that was filled. `bodies` are the CRCs of the bodies of its columns, of
    /// [`Packing::units`]; of a mirror all are that of its one body.
    ///
    /// # Errors
    ///
    /// Returns what is waited for; nothing has changed.
    pub fn begin(
        &mut self,
        (packing, purpose): (&Packing, Purpose),
        bodies: [u32; seglog::members::MEMBERS],
        crc: &impl Checksum,
    ) -> Result<Begun, Wait> {
        let slot = self.free_slot().ok_or(Wait::Window)?;
        let free = self.free(purpose);
        let (kind, units) = (packing.kind(), packing.units(&self.layout));
        let segment = self.log.segment(units);
        // Both data columns have their share of the mirrors.
        // CAST: The lowest bit.
        let column = (self.log.next_sequence() % 2) as usize;
        let used = self.log.mirror(segment, column);
        let begun = self.log.begin((kind, used, units), bodies, free, crc)?;
        let head = begun.head;
        if head.place.unit == 0 {
            self.segments.begin(
                head.place.segment,
                (head.segment_sequence, head.sequence),
                head.live,
            );
            self.free.take();
            self.is_low = self.is_running_low();
        }
        for member in head.used.iter() {
            self.begin_io(member);
        }
        let records = packing.records();
        if let Some(batch) = self.batches.get_mut(slot) {
            *batch = Some(Batch {
                head,
                records,
                purpose,
            });
        }
        let (bytes, _) = head.bytes(self.tag, crc);
        Ok(Begun {
            head,
            bytes,
            at: begun.at,
            slot,
        })
    }

    /// Returns what the entry of a block will be when all batches that have begun are acknowledged.
    pub fn latest(&self, index: u64) -> Entry {
        let mut newest: Option<(u64, Entry)> = None;
        for (slot, batch) in (0..WINDOW).zip(&self.batches) {
            let Some(batch) = batch else { continue };
            let head = &batch.head;
            if newest.is_some_and(|(sequence, _)| sequence > head.sequence) {
                continue;
            }
            let packed = self.packed(slot, batch.records);
            let of_column = |column| {
                let mut each = packed.iter().rev();
                each.find(|packed| packed.is_of(head, column) && packed.assigns(index))
            };
            let last = head.data_columns().rev().find_map(of_column);
            if let Some(last) = last {
                let block = index.saturating_sub(last.record().index);
                // CAST: Below the count of the record.
                let entry = last.entry(head, &self.layout).with_block(block as u32);
                newest = Some((head.sequence, entry));
            }
        }
        newest.map_or_else(
            || Entry::from_word(self.words.word(index)),
            |(_, entry)| entry,
        )
    }

    /// Acknowledges batches, in the order of the log.
    pub(super) fn acknowledge(&mut self, actions: &mut impl Actions) {
        while let Some(acknowledged) = self.log.acknowledge() {
            let is_it = |batch: &Option<Batch>| {
                batch.is_some_and(|batch| batch.head.sequence == acknowledged.sequence)
            };
            let Some(slot) = self.batches.iter().position(is_it) else {
                continue;
            };
            let Some(batch) = self.batches.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            let head = &batch.head;
            note_batch(&mut self.words, head, acknowledged.members, &self.layout);
            for column in head.data_columns() {
                for place in 0..batch.records {
                    self.assign(head, (slot, place), column);
                }
            }
            self.segments
                .acknowledge(head.place.segment, acknowledged.sequence);
            actions.acknowledged(slot);
        }
    }

    /// Assigns what a record of a batch assigns, if it is in a column.
    fn assign(&mut self, head: &Head, (slot, place): (usize, usize), column: usize) {
        let packed = self.packed(slot, RECORDS_MAX).get(place).copied();
        let Some(packed) = packed.filter(|packed| packed.is_of(head, column)) else {
            return;
        };
        let (record, first) = (packed.record(), packed.entry(head, &self.layout));
        for block in (0..record.count).filter(|block| record.assigns(*block)) {
            let index = record.index.saturating_add(block.into());
            let old = Entry::from_word(self.words.word(index));
            let new = first.with_block(block);
            if old != new {
                self.segments
                    .assign((old, new), head.sequence, &self.layout);
                self.words.set(index, new.word());
                self.has_less(old);
            }
        }
    }
}
