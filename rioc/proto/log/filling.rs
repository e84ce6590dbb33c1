// SPDX-License-Identifier: GPL-2.0

//! The batch that is filled: operations put their blocks into it, and the slots that they change.

use seglog::{
    batch::{
        copy,
        Kind,
        HEAD_BYTES, //
    },
    collect::Purpose,
    cursor::Cursor,
    log::Wait,
    members::MEMBERS,
    Checksum, //
};

use super::{
    super::{
        body::{
            bytes_of,
            Body,
            Mark,
            BODY_HEAD_BYTES,
            TAGGED_BYTES, //
        },
        entry::Entry,
        index::Changes,
        medium::{
            Actions,
            Medium,
            Need, //
        },
        slot::{
            Blocks,
            Memory,
            Stored, //
        },
    },
    Flying,
    LogMemory,
    Logged,
    OWN,
    TOUCHED, //
};

/// The column of a batch: its body is behind the head.
pub(super) struct Column<B> {
    pub(super) bytes: B,
    end: usize,
}

impl<B: Memory<u8>> AsRef<[u8]> for Column<B> {
    fn as_ref(&self) -> &[u8] {
        let bytes = self.bytes.as_ref().get(HEAD_BYTES..self.end);
        bytes.unwrap_or_default()
    }
}

impl<B: Memory<u8>> AsMut<[u8]> for Column<B> {
    fn as_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes.as_mut().get_mut(HEAD_BYTES..self.end);
        bytes.unwrap_or_default()
    }
}

/// The batch that is filled.
pub(super) struct Open<M: LogMemory> {
    /// The moment before the operation that is carried out.
    mark: Mark,
    pub(super) body: Body<Column<M::Column>, M::Slots>,
    /// The cursor at which it will be expected.
    at: Cursor,
}

impl<M: LogMemory> Logged<M> {
    /// Begins to fill a batch, behind the one before or in the next segment.
    fn open(&mut self, blocks: usize, changes: usize) -> Result<(), Wait> {
        let unit = self.layout.unit_bytes();
        let needed = bytes_of(blocks, changes).saturating_add(HEAD_BYTES + BODY_HEAD_BYTES);
        let (mut left, mut at) = (self.log.units_left(), *self.log.cursor());
        if (left as usize).saturating_mul(unit) < needed {
            (at.segment, at.unit) = (at.next, 0);
            left = self.layout.parts().segment_units;
        }
        let units = left.min(self.layout.column_units_max()) as usize;
        let place = self.layout.at(at.place()).ok_or(Wait::TooLong)?;
        let origin = (
            place.saturating_add(HEAD_BYTES as u64),
            self.log.next_sequence(),
        );
        let spare = self.spare.iter_mut().find(|column| column.is_some());
        let bytes = spare.and_then(Option::take).ok_or(Wait::Window)?;
        let changed = self.changed.take().ok_or(Wait::Window)?;
        let end = units.saturating_mul(unit).min(bytes.as_ref().len());
        let body = Body::new(Column { bytes, end }, origin, changed);
        let has_room = body.has_room(blocks, changes);
        let mark = body.mark();
        self.open = Some(Open { mark, body, at });
        has_room.then_some(()).ok_or(Wait::TooLong)
    }

    pub(super) fn put_back(&mut self, column: M::Column) {
        if let Some(spare) = self.spare.iter_mut().find(|column| column.is_none()) {
            *spare = Some(column);
        }
    }

    /// Begins the batch that was filled, if something is in it.
    pub(super) fn close(
        &mut self,
        entry: impl Fn(u32) -> Entry,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Wait> {
        let free = self.free(Purpose::Collect);
        let unit = self.layout.unit_bytes();
        if let Some(open) = self.open.as_mut().filter(|open| !open.body.is_empty()) {
            let used = open.body.finish(entry).ok_or(Wait::TooLong)?;
            let used = used.saturating_add(HEAD_BYTES);
            let units = used.saturating_add(unit.saturating_sub(1));
            let mut units = units.checked_div(unit).ok_or(Wait::TooLong)?;
            if open.at.unit == 0 {
                // The segment before has no room for it.
                units = units.max((self.log.units_left() as usize).saturating_add(1));
            }
            let bytes = units.saturating_mul(unit);
            let column = open.body.memory().bytes.as_mut();
            let column = column.get_mut(..bytes).ok_or(Wait::TooLong)?;
            if let Some(rest) = column.get_mut(used..) {
                rest.fill(0);
            }
            let sum = crc.crc32c(column.get(HEAD_BYTES..).unwrap_or_default());
            // CAST: At most those of the longest column.
            let batch = (Kind::Mirror, OWN, units as u16);
            let begun = self.log.begin(batch, [sum; MEMBERS], free, crc)?;
            let head = begun.head;
            copy(column, &head.bytes(self.tag, crc).0);
            actions.write_batch(head.sequence, begun.at, column);
            if head.place.unit == 0 {
                let of_use = (head.segment_sequence, head.sequence);
                self.segments.begin(head.place.segment, of_use, OWN);
                self.free.take();
            }
            let free = self.flying.iter_mut().find(|batch| batch.is_none());
            if let (Some(flying), Some(open)) = (free, self.open.take()) {
                let (column, changed) = open.body.take();
                self.changed = Some(changed);
                *flying = Some(Flying {
                    head,
                    at: begun.at,
                    column: column.bytes,
                    bytes,
                });
            }
        } else if let Some(open) = self.open.take() {
            let (column, changed) = open.body.take();
            self.changed = Some(changed);
            self.put_back(column.bytes);
        }
        Ok(())
    }
}

impl<M: LogMemory> Changes for Logged<M> {
    fn changed(&mut self, slot: u32) {
        if let Some(open) = &mut self.open {
            open.body.change(slot);
        }
    }

    fn freed(&mut self, stored: Stored, blocks: Blocks) {
        let (segment, last) = (self.segment_of(stored.place), self.last());
        for _ in 0..blocks.count() {
            self.segments.remove(segment, TAGGED_BYTES as u64, last);
        }
    }
}

impl<M: LogMemory> Medium for Logged<M> {
    fn prepare(
        &mut self,
        (purpose, blocks, changes): Need,
        entry: impl Fn(u32) -> Entry,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Wait> {
        if self.is_stopped() {
            return Err(Wait::Stopped);
        }
        if self.free(purpose).is_none() {
            self.is_blocked = true;
            return Err(Wait::Segment);
        }
        // Who moves may have room where who writes has none.
        self.is_blocked = self.is_blocked && purpose != Purpose::Write;
        let is_open = |open: &Open<M>| open.body.has_room(blocks, changes);
        if self.open.as_ref().is_some_and(is_open) {
            return Ok(());
        }
        self.close(entry, (actions, crc))?;
        self.open(blocks, changes)
    }

    fn begin(&mut self) {
        if let Some(open) = &mut self.open {
            open.mark = open.body.mark();
        }
    }

    fn undo(&mut self) {
        let last = self.last();
        if let Some(open) = &mut self.open {
            for _ in 0..open.body.blocks_since(open.mark) {
                let segment = open.at.segment;
                self.segments.remove(segment, TAGGED_BYTES as u64, last);
            }
            open.body.go_back(open.mark);
        }
    }

    fn put<'b>(
        &mut self,
        blocks: impl Iterator<Item = (u32, &'b [u8])>,
        crc: &impl Checksum,
    ) -> Option<Stored> {
        let open = self.open.as_mut()?;
        let mark = open.body.mark();
        let stored = open.body.put(blocks, crc)?;
        for _ in 0..open.body.blocks_since(mark) {
            self.segments.add(open.at.segment, TAGGED_BYTES as u64);
        }
        Some(stored)
    }

    fn begin_read(&mut self, stored: &Stored) {
        let segment = self.segment_of(stored.place);
        self.segments.begin_read(segment);
    }

    fn end_read(&mut self, stored: &Stored) {
        let segment = self.segment_of(stored.place);
        if self.segments.end_read(segment) {
            self.free.count_again();
        }
    }

    fn touch(&mut self, bits: u64) {
        let (batch, durable) = (self.last(), self.durable());
        // CAST: Below the number of places.
        let place = self.touched.get_mut((batch % TOUCHED) as usize);
        if let Some((number, touched)) = place {
            let is_kept = *number > durable;
            *touched = bits | if is_kept { *touched } else { 0 };
            *number = batch;
        }
    }

    fn changed_by(&self, bits: u64) -> u64 {
        let each = self
            .touched
            .iter()
            .filter(|(_, touched)| touched & bits != 0);
        each.map(|(batch, _)| *batch).max().unwrap_or_default()
    }

    fn last(&self) -> u64 {
        let next = self.log.next_sequence();
        next.saturating_sub(u64::from(!self.is_filled()))
    }

    fn room(&self) -> (u64, u64) {
        (self.blocks(), self.blocks_max())
    }

    fn identity(&self) -> Option<u64> {
        let uuid = u128::from_le_bytes(self.superblock.uuid);
        // CAST: Both halves.
        Some((uuid >> u64::BITS) as u64 ^ uuid as u64)
    }
}
