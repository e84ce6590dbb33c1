// SPDX-License-Identifier: GPL-2.0

//! Writes: they are made records, and batches of these.

use block_ext::{
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::xor::xor_into;
use seglog::{
    batch::HEAD_BYTES,
    collect::Purpose,
    layout::Layout,
    log::{
        Wait,
        WINDOW, //
    },
    members::column_of,
    record::Record,
};

use super::{
    core::{
        Core,
        Event, //
    },
    engine::{
        blocks,
        Engine, //
    },
    memory::{
        columns,
        Crc,
        Elements,
        Images, //
    },
    prepare::{
        Helper,
        Job,
        Prepared,
        Preparer,
        PARTS_MAX, //
    },
    stats::Stat,
    submit::Operation,
    tags::{
        Tags,
        DEPTH, //
    },
};
use crate::proto::{
    array::{
        Begun,
        Io, //
    },
    codec::plain_bytes,
    group_commit,
    packing::{
        record_bytes_max,
        Columns,
        Packing,
        Room, //
    },
};

/// Writes that have not ended.
pub(super) struct Writes {
    /// The records of the write of each tag; `None` while they are being made.
    prepared: KVec<Option<KBox<Prepared>>>,
    preparer: Preparer,
    helpers: KVec<Arc<Helper>>,
    columns: Columns<Elements<u8>>,
    images: Images,
    waiting: Group,
    /// The writes of each batch in flight.
    slots: [Group; WINDOW],
}

/// Writes that wait, or are in a batch.
#[derive(Clone, Copy)]
struct Group {
    tags: Tags,
    /// The bytes of their records.
    bytes: usize,
}

impl Group {
    /// None.
    const NONE: Self = Self {
        tags: Tags::NONE,
        bytes: 0,
    };

    /// Appends one, whose records have so many bytes.
    fn push(&mut self, tag: usize, bytes: usize) {
        self.tags.push(tag);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Takes all of them.
    fn take_all(&mut self) -> Tags {
        core::mem::replace(self, Self::NONE).tags
    }
}

impl Writes {
    /// Allocates all memory. Sleeps.
    pub(super) fn new() -> Result<Self> {
        let mut prepared = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            let one = KBox::new(Prepared::new()?, GFP_KERNEL)?;
            prepared.push(Some(one), GFP_KERNEL)?;
        }
        Ok(Self {
            prepared,
            preparer: Preparer::new()?,
            helpers: KVec::new(),
            columns: columns()?,
            images: Images::new()?,
            waiting: Group::NONE,
            slots: [Group::NONE; WINDOW],
        })
    }

    /// Takes the writes of the batch in a slot.
    pub(super) fn take_slot(&mut self, slot: usize) -> Tags {
        let group = self.slots.get_mut(slot);
        group.map_or(Tags::NONE, Group::take_all)
    }

    /// A write waits for a batch.
    fn wait(&mut self, tag: usize) {
        let bytes = self.record_bytes(tag);
        self.waiting.push(tag, bytes);
    }

    /// Moves the first write that waits to another group.
    fn take_first(&mut self, to: &mut Group) {
        if let Some(tag) = self.waiting.tags.pop() {
            let bytes = self.record_bytes(tag);
            self.waiting.bytes = self.waiting.bytes.saturating_sub(bytes);
            to.push(tag, bytes);
        }
    }

    /// Returns the bytes of the records of a write that was prepared.
    fn record_bytes(&self, tag: usize) -> usize {
        let prepared = self.prepared.get(tag).and_then(Option::as_ref);
        prepared.map_or(0, |prepared| prepared.record_bytes())
    }

    /// Whether the writes that wait become a batch now.
    fn is_due(&self, layout: &Layout) -> bool {
        let in_flight_bytes = self.slots.iter().map(|group| group.bytes).sum();
        group_commit::is_due(
            self.waiting.bytes,
            in_flight_bytes,
            record_bytes_max(layout),
        )
    }

    /// Takes the writes that wait for a batch.
    pub(super) fn take_waiting(&mut self) -> Tags {
        self.waiting.take_all()
    }
}

impl Engine {
    /// The array has helpers from now on.
    pub(super) fn set_helpers(&mut self, helpers: KVec<Arc<Helper>>) {
        self.writes.helpers = helpers;
    }

    /// Makes records of a write without data, or lets them be made.
    ///
    /// # Errors
    ///
    /// Returns the request's error.
    pub(super) fn prepare(&mut self, core: &Arc<Core>, tag: usize) -> Result {
        let place = self.writes.prepared.get_mut(tag).ok_or(EINVAL)?;
        let mut prepared = place.take().ok_or(EINVAL)?;
        let request = self.requests.get(tag).ok_or(EINVAL)?;
        let range @ (_, count) = blocks(request);
        if request.op() != Op::Write {
            let result = prepared.set_zeroes(range);
            *place = Some(prepared);
            if result.is_ok() {
                self.writes.wait(tag);
            }
            return result;
        }
        core.stats
            .add(Stat::WrittenBytes, plain_bytes(count) as u64);
        let request = self.requests.take(tag).ok_or(EINVAL)?;
        core.prepare(Job {
            request,
            prepared,
            result: Ok(()),
        });
        Ok(())
    }

    /// Makes records of writes that have come, with the help of other processors.
    pub(super) fn go_on_with_preparing(&mut self, core: &Arc<Core>) {
        let waiting = core.unprepared();
        for helper in self.writes.helpers.iter().take(waiting.saturating_sub(1)) {
            helper.start();
        }
        while let Some(mut job) = core.next_unprepared() {
            self.writes
                .preparer
                .prepare(&mut job, core.settings.compression);
            self.is_prepared(job);
            if !self.writes.helpers.is_empty() {
                // They do the others; what has ended meanwhile is looked at.
                break;
            }
        }
        while let Some(job) = core.next_prepared() {
            self.is_prepared(job);
        }
    }

    /// A write has its records, or cannot have them.
    fn is_prepared(&mut self, job: Job) {
        let Job {
            request,
            prepared,
            result,
        } = job;
        // CAST: Below the depth.
        let tag = request.tag() as usize;
        if let Some(place) = self.writes.prepared.get_mut(tag) {
            *place = Some(prepared);
        }
        self.requests.put(tag, request);
        match result {
            Ok(()) => self.writes.wait(tag),
            Err(error) => self.requests.end(tag, Err(error)),
        }
    }

    /// Begins batches of the writes that wait; whether they wait for a segment.
    pub(super) fn begin_batches(&mut self, core: &Arc<Core>, purpose: Purpose) -> bool {
        let mut begins_segment = false;
        let layout = self.layout();
        while self.writes.is_due(&layout) {
            let mut packing = match self.array.pack(purpose, begins_segment) {
                Ok(packing) => packing,
                Err(Wait::Segment) => return true,
                Err(_) => return false,
            };
            let mut taken = Group::NONE;
            while let Some(tag) = self.writes.waiting.tags.front() {
                if !self.add_write(&mut packing, tag) {
                    break;
                }
                self.writes.take_first(&mut taken);
            }
            if taken.tags.is_empty() {
                if begins_segment {
                    // It is longer than a batch, which requests are not.
                    self.writes.take_first(&mut taken);
                    for tag in taken.tags {
                        self.requests.end(tag, Err(EIO));
                    }
                }
                begins_segment = !begins_segment;
                continue;
            }
            begins_segment = false;
            match self.begin_batch(core, (&packing, purpose)) {
                Ok(slot) => {
                    if let Some(of_slot) = self.writes.slots.get_mut(slot) {
                        *of_slot = taken;
                    }
                }
                Err(_) => {
                    // It was packed under the same lock, so it can begin.
                    for tag in taken.tags {
                        self.requests.end(tag, Err(EIO));
                    }
                }
            }
        }
        false
    }

    /// Takes the writes that wait for a batch and have data; those that give room back still wait.
    fn take_data(&mut self) -> Tags {
        let mut data = Tags::NONE;
        for tag in self.writes.take_waiting() {
            let request = self.requests.get(tag);
            if request.is_some_and(|request| request.op() == Op::Write) {
                data.push(tag);
            } else {
                self.writes.wait(tag);
            }
        }
        data
    }

    /// Begins batches of those of the writes that wait which give room back.
    pub(super) fn begin_zeroes(&mut self, core: &Arc<Core>) {
        let data = self.take_data();
        if !self.writes.waiting.tags.is_empty() {
            self.begin_batches(core, Purpose::Reserved);
        }
        for tag in data {
            self.writes.wait(tag);
        }
    }

    /// Fails those that need room.
    pub(super) fn refuse_writes(&mut self) {
        for tag in self.take_data() {
            self.requests.end(tag, Err(ENOSPC));
        }
    }

    /// Puts all records of a write into the batch, or none.
    fn add_write(&mut self, packing: &mut Packing, tag: usize) -> bool {
        let Some(Some(prepared)) = self.writes.prepared.get(tag) else {
            return false;
        };
        let before = *packing;
        let mut rooms = [Room { column: 0, at: 0 }; PARTS_MAX];
        for ((record, _), room) in prepared.parts().zip(&mut rooms) {
            match self.array.add(packing, record) {
                Some(found) => *room = found,
                None => {
                    *packing = before;
                    return false;
                }
            }
        }
        let (layout, sequence) = (*self.array.layout(), self.array.next_sequence());
        for (part, room) in prepared.parts().zip(rooms) {
            let columns = &mut self.writes.columns;
            // The room was found for it.
            let _ = columns.write(room, part, (&layout, sequence), &Crc);
        }
        true
    }

    /// Writes records into the batch that is made, or none; whether there was room.
    pub(super) fn add_records<'a>(
        &mut self,
        packing: &mut Packing,
        parts: impl Iterator<Item = (&'a Record, &'a [u8])>,
    ) -> bool {
        let before = *packing;
        for part in parts {
            if !self.add_record(packing, part) {
                *packing = before;
                return false;
            }
        }
        true
    }

    /// Writes a record into the batch that is made; whether there was room.
    fn add_record(&mut self, packing: &mut Packing, part: (&Record, &[u8])) -> bool {
        let Some(room) = self.array.add(packing, part.0) else {
            return false;
        };
        let (layout, sequence) = (*self.array.layout(), self.array.next_sequence());
        let columns = &mut self.writes.columns;
        columns
            .write(room, part, (&layout, sequence), &Crc)
            .is_some()
    }

    /// Begins the batch that was made; returns its slot.
    pub(super) fn begin_batch(
        &mut self,
        core: &Arc<Core>,
        (packing, purpose): (&Packing, Purpose),
    ) -> Result<usize, Wait> {
        let layout = *self.array.layout();
        let bodies = self.writes.columns.finish(packing, &layout, &Crc, xor_into);
        let begun = self.array.begin((packing, purpose), bodies, &Crc)?;
        let head = &begun.head;
        let bytes = head.column_bytes(&layout);
        core.stats.add(Stat::Batches, 1);
        if head.kind == seglog::batch::Kind::Mirror {
            core.stats.add(Stat::Mirrors, 1);
        }
        let of_members = bytes.saturating_mul(head.used.count());
        core.stats.add(Stat::MemberBytes, of_members as u64);
        if purpose == Purpose::Write {
            let stored =
                (packing.used(0).saturating_add(packing.used(1))).saturating_sub(2 * HEAD_BYTES);
            core.stats.add(Stat::StoredBytes, stored as u64);
        }
        for member in head.used.iter() {
            self.write_column(&begun, (member, bytes));
        }
        Ok(begun.slot)
    }

    /// Whether writes wait for a segment.
    pub(super) fn is_blocked(&mut self) -> bool {
        !self.writes.waiting.tags.is_empty()
            && matches!(self.array.pack(Purpose::Write, false), Err(Wait::Segment))
    }

    /// Begins the write of a member's column.
    fn write_column(&self, begun: &Begun, (member, bytes): (usize, usize)) {
        let head = &begun.head;
        let column = column_of(head.place.segment, member);
        let from = self.writes.columns.of(head, column);
        let Some(image) = self.writes.images.get(begun.slot, member) else {
            return;
        };
        let body = from.get(HEAD_BYTES..bytes).unwrap_or_default();
        let _ = image.copy_in(0, &begun.bytes);
        let _ = image.copy_in(HEAD_BYTES, body);
        let io = Io::Column(head.sequence);
        let event = Event::Array { io, member };
        let what = Operation {
            op: Op::Write,
            flags: Flags::NONE,
            at: begun.at,
            data: Some((image.clone(), bytes)),
        };
        self.means.submit((member, event), what);
    }

    /// Begins a batch without records, if none of writes comes before it.
    pub(super) fn begin_empty_batch(&mut self, core: &Arc<Core>) {
        match self.array.pack(Purpose::Collect, false) {
            Ok(packing) => {
                let _ = self.begin_batch(core, (&packing, Purpose::Collect));
            }
            Err(Wait::Segment) => {
                self.act(|array, acting| array.free_empty(true, acting));
            }
            // What is waited for ends with an event, after which it is looked at again.
            Err(_) => {}
        }
    }
}
