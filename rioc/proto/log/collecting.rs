// SPDX-License-Identifier: GPL-2.0

//! Collecting: the blocks of a segment that are used are put into other batches.
//!
//! Batches are read without the lock, one after the other. Their own bodies say which extents were
//! put there; under the lock those are moved that are still there.

use seglog::{
    batch::{
        Head,
        HEAD_BYTES, //
    },
    collect::Purpose,
    devices::Devices,
    layout::{
        Layout,
        Place, //
    },
    log::Wait,
    reading::heads,
    ArrayTag,
    Checksum, //
};

use super::{
    super::{
        body::{
            assignments,
            block_unread,
            place_of, //
        },
        entry,
        index::{
            Index,
            STEP_RANGES, //
        },
        medium::{
            Actions,
            Medium, //
        },
        slot::{
            Extent,
            Memory,
            Slot, //
        },
        span::IO_BLOCKS_MAX,
    },
    LogMemory,
    Logged,
    OWN, //
};

/// A segment that is collected. It counts as read meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    segment: u32,
    sequence: u64,
    /// The unit up to which it was read.
    unit: u32,
    /// The batch that was read, and the first of its assignments that was not looked at.
    head: Option<(Head, usize)>,
}

/// The result of moving what is used of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Nothing is left: the next batch is to be read.
    All,
    /// A part for which there was room: the rest is tried again.
    Some(Wait),
}

impl Victim {
    /// Reads the next batch of the segment to `column`, which is as long as the longest; returns
    /// whether there is one. One that is damaged is left out: what is in it cannot be moved.
    pub fn load<D: Devices>(
        &mut self,
        devices: &mut D,
        column: &mut [u8],
        (layout, tag): (&Layout, ArrayTag),
        crc: &impl Checksum,
    ) -> bool {
        self.head = None;
        while self.unit < layout.parts().segment_units {
            let place = Place {
                segment: self.segment,
                unit: self.unit,
            };
            let unit = column.get_mut(..layout.unit_bytes()).unwrap_or_default();
            let [found, ..] = heads(devices, (place, OWN), unit, (layout, tag), crc);
            let of_use = found.filter(|(head, _)| head.segment_sequence == self.sequence);
            let Some((head, _)) = of_use else {
                self.unit = self.unit.saturating_add(1);
                continue;
            };
            self.unit = self.unit.saturating_add(head.units.into());
            let to = column.get_mut(..head.column_bytes(layout));
            let at = layout.at(place).unwrap_or_default();
            let is_read = to.is_some_and(|to| {
                devices.read(0, at, to).is_ok() && head.is_body(head.data_columns().start, to, crc)
            });
            if is_read {
                self.head = Some((head, 0));
                return true;
            }
        }
        false
    }
}

impl<M: LogMemory> Logged<M> {
    /// Returns what is needed to read a [`Victim`] without the lock.
    pub fn reading(&self) -> (Layout, ArrayTag) {
        (self.layout, self.tag)
    }

    /// Chooses the segment that is collected next. `None` if nothing would be gained.
    pub fn begin_collecting(&mut self) -> Option<Victim> {
        let before = self.log.collectable_before();
        let victim = |log: &Self| log.segments.victim((OWN, log.gain_bytes()), before);
        let segment = victim(self).or_else(|| {
            // Some may be readable now.
            self.segments.collect_again();
            victim(self)
        })?;
        let sequence = self.segments.sequence(segment)?;
        self.segments.begin_read(segment);
        Some(Victim {
            segment,
            sequence,
            unit: 0,
            head: None,
        })
    }

    /// Moves what is used of the batch that was read to `column`.
    pub fn collect<S: Memory<Slot>, B: Memory<u32>>(
        &mut self,
        (victim, column): (&mut Victim, &[u8]),
        index: &mut Index<S, B>,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Moved {
        let Some((head, looked)) = &mut victim.head else {
            return Moved::All;
        };
        let body = column.get(HEAD_BYTES..head.column_bytes(&self.layout));
        let all = assignments(body.unwrap_or_default());
        let origin = self.layout.at(head.place).unwrap_or_default();
        for (slot, entry) in all.into_iter().flatten().skip(*looked) {
            let put = entry::slot(entry).ok();
            if let Some(Slot::Extent(extent)) = put {
                let bytes = column.get(..head.column_bytes(&self.layout));
                let from = (origin, bytes.unwrap_or_default());
                if let Err(wait) = self.move_extent((slot, &extent), from, index, (actions, crc)) {
                    return Moved::Some(wait);
                }
            }
            *looked = looked.saturating_add(1);
        }
        Moved::All
    }

    /// Moves an extent that was put into a batch, if it is still there.
    fn move_extent<S: Memory<Slot>, B: Memory<u32>>(
        &mut self,
        (slot, put): (u32, &Extent),
        (origin, column): (u64, &[u8]),
        index: &mut Index<S, B>,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Wait> {
        let movable = index.movable(slot);
        let Some((stored, blocks)) = movable.filter(|(stored, _)| *stored == put.stored) else {
            return Ok(());
        };
        let ranges = index.slots().extent(slot).map_or(0, |e| e.references);
        let changes = (ranges.min(STEP_RANGES) as usize).saturating_add(1);
        let needed = (Purpose::Collect, blocks.count().into(), changes);
        self.prepare(needed, |slot| index.entry(slot), (actions, crc))?;
        let each = (0..IO_BLOCKS_MAX as u8).filter(|block| blocks.contains(*block));
        let each = each.filter_map(|number| {
            let at = place_of(&stored, number).checked_sub(origin)?;
            let bytes = column.get(usize::try_from(at).ok()?..)?;
            block_unread(bytes, &stored).ok()
        });
        self.begin();
        let count = each.clone().fold(0u8, |count, _| count.saturating_add(1));
        let is_whole = u32::from(count) == u32::from(blocks.count());
        let to = is_whole.then(|| self.put(each, crc)).flatten();
        let is_moved = to.is_some_and(|to| index.relocate(slot, (stored, blocks), to, self));
        if !is_moved {
            self.undo();
        }
        Ok(())
    }

    /// The segment was collected, or is given up.
    pub fn end_collecting(&mut self, victim: &Victim) {
        if self.segments.end_read(victim.segment) {
            self.free.count_again();
        }
        if victim.unit >= self.layout.parts().segment_units {
            self.segments.collected(victim.segment);
        }
    }
}
