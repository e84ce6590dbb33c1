// SPDX-License-Identifier: GPL-2.0

//! Writes of the application.

use seglog::{
    batch::{
        Kind,
        HEAD_BYTES, //
    },
    collect::Purpose,
    log::Wait,
    members::{
        column_of,
        MEMBERS, //
    },
    record::{
        assign,
        Record,
        CODEC_ZEROES, //
    },
    table::{
        note_batch,
        Dump, //
    },
    Checksum, //
};

use super::{
    Batch,
    Event,
    Kinds,
    World, //
};
use crate::{
    assembly::{
        Fast,
        Words, //
    },
    disk::Shape,
    setting::{
        payload,
        Op,
        Setting,
        Versions, //
    },
    Mistake,
};

const CODEC: u8 = 2;

/// Content of a data column: a record and its payload.
pub(super) type Part = (Record, Vec<u8>);

/// Parts of a batch, and the state of the blocks after it.
pub(super) struct Content {
    pub(super) kind: Kind,
    pub(super) parts: [Option<Part>; 2],
    pub(super) state: Versions,
    pub(super) purpose: Purpose,
}

impl World {
    /// Does what the application has left, and all that follows; an error if that does not end.
    pub(crate) fn finish(
        mut self,
        with: (&Setting, &Shape),
        depth: usize,
        mistake: Mistake,
    ) -> Result<Self, String> {
        for _ in 0..2_000 {
            let has_left = self.next_op < with.0.mounts[depth].len();
            let event = match (self.ios.is_empty(), has_left, self.resync) {
                (false, _, _) => Event::End(0),
                _ if self.reading.is_some() => Event::Read(0),
                (true, true, _) => Event::Issue,
                (true, false, Some(_)) => Event::Collect,
                (true, false, None) => return Ok(self),
            };
            match self.after(with, depth, event, mistake) {
                Some(next) => self = next,
                None if self.log.live().count() < 2 => return Ok(self),
                None => return Err(self.stuck(event)),
            }
        }
        Err(format!("it does not end: {}", self.stuck(Event::Issue)))
    }

    fn stuck(&self, event: Event) -> String {
        format!(
            "{event:?} cannot be, and nothing else is: {:?}, resync {:?} {:?}, dump {:?}, {:?} {:?}, reading {:?}, collecting {:?}, {:?}, step {}",
            self.log,
            self.resync,
            self.resync_step(),
            self.dump,
            self.segments,
            self.start,
            self.reading,
            self.collecting,
            self.ios,
            self.next_op,
        )
    }

    /// The application goes on: with its next step, or with what makes room for it.
    pub(super) fn go_on(
        &mut self,
        (setting, shape): (&Setting, &Shape),
        depth: usize,
        mistake: Mistake,
    ) -> Option<()> {
        let op = setting.mounts[depth][self.next_op];
        let is_write = matches!(op, Op::Write(..) | Op::Zero(_) | Op::Pair(_));
        if setting.frees && is_write && self.free(Purpose::Write, shape, mistake).is_none() {
            self.make_free(shape, mistake)
        } else {
            self.issue(op, shape, mistake)
        }
    }

    fn issue(&mut self, op: Op, shape: &Shape, mistake: Mistake) -> Option<()> {
        match op {
            Op::Write(kind, blocks) => {
                self.write(kind, blocks.map(|b| (b, CODEC)), shape, mistake)?
            }
            Op::Zero(block) => {
                self.write(
                    Kind::Mirror,
                    [(Some(block), CODEC_ZEROES), (None, 0)],
                    shape,
                    mistake,
                )?;
            }
            Op::Pair(block) => self.write_pair(block, shape, mistake)?,
            Op::Dump => self.begin_dump()?,
            Op::Flush => self.flush(mistake)?,
        }
        self.next_op += 1;
        Some(())
    }

    pub(super) fn begin_dump(&mut self) -> Option<()> {
        let is_idle = self.dump.is_none();
        is_idle.then(|| self.dump = Some(Dump::begin(&self.log, &self.start)))
    }

    fn flush(&mut self, mistake: Mistake) -> Option<()> {
        let members = self.log.flush()?;
        if mistake == Mistake::FlushCoversInFlight {
            // As if all that was issued were acknowledged.
            self.history.forget(self.log.next_sequence() - 1);
        }
        for member in members.iter() {
            let io = self.begin_io(member, Kinds::Flush);
            self.disks[member].begin_flush(io);
        }
        if mistake == Mistake::FlushNotWaitedFor {
            members.iter().for_each(|member| self.log.flushed(member));
        }
        if mistake == Mistake::ReturningNotWaitedFor {
            let returning = members.minus(self.log.live());
            let each = returning.iter();
            each.for_each(|member| self.log.flushed(member));
        }
        if mistake == Mistake::OneMemberNotFlushed {
            self.ios
                .retain(|io| io.kind != Kinds::Flush || io.member != 0);
            self.log.flushed(0);
        }
        Some(())
    }

    /// Whether a flush or a dump may free segments.
    fn can_free(&self) -> bool {
        let next = Dump::begin(&self.log, &self.start).start().cursor;
        self.log.durable() < self.log.acknowledged() || next != self.start.cursor
    }

    /// Frees segments that nothing is live in.
    pub(super) fn free_empty(&mut self, mistake: Mistake) -> Option<()> {
        if !self.can_free() {
            return None;
        }
        if self.log.durable() < self.log.acknowledged() {
            self.flush(mistake)
        } else {
            self.begin_dump()
        }
    }

    /// Makes segments free that a batch waits for.
    fn make_free(&mut self, shape: &Shape, mistake: Mistake) -> Option<()> {
        if self.can_free() {
            self.free_empty(mistake)
        } else {
            self.collect(shape, mistake)
        }
    }

    pub(super) fn free(&self, purpose: Purpose, shape: &Shape, mistake: Mistake) -> Option<u32> {
        let mut start = self.start;
        if mistake == Mistake::ReusedBeforeDump {
            start.cursor.segment_sequence = u64::MAX;
        }
        let is_flushed = mistake == Mistake::ReusedBeforeFlush;
        let durable = if is_flushed {
            self.log.acknowledged()
        } else {
            self.log.durable()
        };
        let purpose = if mistake == Mistake::ReserveForgotten {
            Purpose::Collect
        } else {
            purpose
        };
        let end = (self.log.cursor(), durable);
        self.segments.free(purpose, end, (&start, &shape.layout))
    }

    /// The table when all batches that have begun are acknowledged.
    pub(super) fn newest_table(&self) -> &Words {
        self.batches
            .last()
            .map_or(&self.table, |batch| &batch.table)
    }

    fn write(
        &mut self,
        kind: Kind,
        blocks: [(Option<usize>, u8); 2],
        shape: &Shape,
        mistake: Mistake,
    ) -> Option<()> {
        let mut state = self.history.newest();
        let parts = blocks.map(|(block, codec)| {
            let block = block?;
            let version = self.next_version;
            let data = payload(version);
            let data: &[u8] = if codec == CODEC_ZEROES { &[] } else { &data };
            state[block] = if data.is_empty() { 0 } else { version };
            self.next_version += 1;
            let record = Record {
                index: block as u64,
                count: 1,
                codec,
                payload_bytes: data.len() as u16,
                skipped: 0,
            };
            Some((record, data.to_vec()))
        });
        let purpose = Purpose::Write;
        self.put(
            Content {
                kind,
                parts,
                state,
                purpose,
            },
            shape,
            mistake,
        )
    }

    /// Writes two blocks with one record.
    fn write_pair(&mut self, block: usize, shape: &Shape, mistake: Mistake) -> Option<()> {
        let mut state = self.history.newest();
        let version = self.next_version;
        self.next_version += 1;
        state[block..block + 2].fill(version);
        let record = Record {
            index: block as u64,
            count: 2,
            codec: CODEC,
            payload_bytes: 8,
            skipped: 0,
        };
        let content = Content {
            kind: Kind::Mirror,
            parts: [Some((record, payload(version).to_vec())), None],
            state,
            purpose: Purpose::Write,
        };
        self.put(content, shape, mistake)
    }

    /// Begins a batch.
    pub(super) fn put(&mut self, content: Content, shape: &Shape, mistake: Mistake) -> Option<()> {
        let (layout, crc, kind) = (&shape.layout, Fast(mistake), content.kind);
        let (units, sequence) = (1u16, self.log.next_sequence());
        let segment = self.log.segment(units);
        let used = self.log.mirror(segment, (sequence % 2) as usize);
        let mut bodies = [const { [0u8; 32] }; MEMBERS];
        for (part, body) in content.parts.iter().zip(&mut bodies) {
            let Some((record, data)) = part else { continue };
            record.write(body, data, (layout, sequence), &crc).unwrap();
        }
        match kind {
            Kind::Mirror => bodies = [bodies[0]; MEMBERS],
            Kind::Striped if mistake == Mistake::ParityLeftOut => {}
            Kind::Striped => {
                let [one, other, parity] = &mut bodies;
                for ((one, other), parity) in one.iter().zip(other).zip(parity) {
                    *parity = *one ^ *other;
                }
            }
        }
        let crcs = bodies.map(|body| crc.crc32c(&body));
        let free = self.free(content.purpose, shape, mistake);
        let begun = match self.log.begin((kind, used, units), crcs, free, &crc) {
            Ok(begun) => begun,
            Err(Wait::Window | Wait::Epoch | Wait::Segment | Wait::Stopped) => return None,
            Err(why @ Wait::TooLong) => panic!("{why:?}"),
        };
        let head = begun.head;
        let tag = self.superblocks.iter().flatten().next().unwrap().tag;
        let (bytes, _) = head.bytes(tag, &crc);
        if head.place.unit == 0 {
            self.segments
                .begin(segment, (head.segment_sequence, head.sequence), head.live);
        }
        let mut table = self.newest_table().clone();
        note_batch(&mut table, &head, head.live, layout);
        for column in head.data_columns() {
            let column_bytes = [bytes.as_slice(), &bodies[column]].concat();
            assign(&mut table, (&head, column), &column_bytes, layout, &crc).unwrap();
        }
        for member in head.used.iter() {
            let column = [bytes.as_slice(), &bodies[column_of(segment, member)]].concat();
            assert_eq!(column.len(), HEAD_BYTES + 32);
            let io = self.begin_io(member, Kinds::Column(head.sequence));
            self.disks[member].begin(shape, begun.at, &column, io);
        }
        if mistake == Mistake::ReturningNotWaitedFor {
            let returning = self.log.written_members().minus(self.log.live());
            let each = returning.iter();
            each.for_each(|member| self.log.written(head.sequence, member));
        }
        self.batches.push(Batch {
            sequence: head.sequence,
            segment,
            table,
        });
        self.history.states.push(content.state);
        assert!(head.used.is_within(head.live) && head.used.count() >= 2);
        Some(())
    }
}
