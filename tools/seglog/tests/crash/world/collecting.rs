// SPDX-License-Identifier: GPL-2.0

//! Collecting: what is live in a segment is moved, batch after batch.

use seglog::{
    batch::{
        Head,
        Kind, //
    },
    collect::{
        live,
        newest,
        Purpose, //
    },
    layout::Place,
    members::{
        Members,
        DATA_COLUMNS, //
    },
    record::{
        Record,
        Records, //
    },
    resync::Step,
    source::{
        self,
        Source, //
    },
};

use super::{
    write::{
        Content,
        Part, //
    },
    World, //
};
use crate::{
    assembly::{
        Fast,
        Words, //
    },
    disk::Shape,
    Mistake, //
};

/// A record that was read, to be moved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Found {
    head: Head,
    column: usize,
    at: usize,
    record: Record,
    payload: Vec<u8>,
}

impl Collecting {
    pub(super) fn is_loaded(&self) -> bool {
        !self.found.is_empty()
    }
}

impl Found {
    fn live(&self, latest: &Words, shape: &Shape) -> Option<Record> {
        let at = (&self.head, self.column, self.at);
        let entry = |index: u64| latest.entry(index as usize);
        live(&self.record, at, entry, &shape.layout)
    }
}

/// A segment that is collected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Collecting {
    segment: u32,
    /// Records that were read, and were not moved.
    found: Vec<Found>,
}

impl World {
    /// Reads a segment, or moves some of what was read.
    pub(super) fn collect(&mut self, shape: &Shape, mistake: Mistake) -> Option<()> {
        let before = self.collecting.clone();
        let has_room = self.free(Purpose::Collect, shape, mistake).is_some();
        if self.resync_step() == Some(Step::Batch) {
            if !has_room {
                return self.free_empty(mistake);
            }
            let content = Content {
                kind: Kind::Striped,
                parts: [None, None],
                state: self.history.newest(),
                purpose: Purpose::Collect,
            };
            return self.put(content, shape, mistake);
        }
        let Some(mut collecting) = self.collecting.take() else {
            self.collecting = Some(self.begin_collecting(shape, mistake)?);
            return Some(());
        };
        let parts = self.next_parts(&mut collecting, shape, mistake);
        let kind = match &parts {
            [None, _] => {
                if mistake != Mistake::CollectedUnread {
                    self.segments.end_read(collecting.segment);
                }
                return Some(());
            }
            [_, None] => Kind::Mirror,
            _ => Kind::Striped,
        };
        if !has_room {
            self.collecting = before;
            return self.free_empty(mistake);
        }
        self.collecting = Some(collecting);
        let content = Content {
            kind,
            parts,
            state: self.history.newest(),
            purpose: Purpose::Collect,
        };
        self.put(content, shape, mistake)
    }

    /// Takes the next records that are live.
    fn next_parts(
        &self,
        collecting: &mut Collecting,
        shape: &Shape,
        mistake: Mistake,
    ) -> [Option<Part>; 2] {
        let latest = if mistake == Mistake::MovedOverWrite {
            &self.table
        } else {
            self.newest_table()
        };
        let mut next = || loop {
            let found = collecting.found.pop()?;
            let record = match mistake {
                Mistake::DeadMoved => Some(found.record).filter(|record| record.payload_bytes > 0),
                _ => found.live(latest, shape),
            };
            if let Some(record) = record {
                return Some((record, found.payload));
            }
        };
        [next(), next()]
    }

    /// Reads all records of the next victim.
    fn begin_collecting(&mut self, shape: &Shape, mistake: Mistake) -> Option<Collecting> {
        let members = self.log.written_members();
        let before = self.log.collectable_before();
        let full = shape.layout.segment_bytes() * DATA_COLUMNS as u64;
        let victim = self.segments.victim((members, full - full / 16), before);
        let segment = victim?;
        if mistake != Mistake::CollectedUnread {
            self.segments.begin_read(segment);
        }
        let sequence = self.segments.sequence(segment)?;
        let usable = self.table.members(segment).and(members);
        let (mut unit, mut all) = (0, Vec::new());
        while unit < shape.layout.parts().segment_units {
            let place = Place { segment, unit };
            let heads = usable.iter().filter_map(|member| {
                let bytes = self.read_column(shape, Source::Member(member), place, 1);
                self.head(shape, &bytes, place, mistake)
            });
            let head = match mistake {
                Mistake::OlderHeadCollected => heads.min_by_key(|head| head.incarnation),
                _ => newest(heads, sequence),
            };
            unit += head.map_or(1, |head| u32::from(head.units));
            if let Some(head) = head {
                all.extend(self.records(shape, &head, usable, mistake));
            }
        }
        Some(Collecting {
            segment,
            found: all,
        })
    }

    fn head(&self, shape: &Shape, bytes: &[u8], place: Place, mistake: Mistake) -> Option<Head> {
        let tag = self.superblocks.iter().flatten().next().unwrap().tag;
        let found = Head::parse(bytes, place, (&shape.layout, tag), &Fast(mistake));
        found.map(|(head, _)| head)
    }

    fn read_column(&self, shape: &Shape, way: Source, place: Place, units: u16) -> Vec<u8> {
        let at = shape.layout.at(place).unwrap();
        let read = |member: usize| {
            let mut bytes = vec![0; usize::from(units) * shape.layout.unit_bytes()];
            self.disks[member].read(shape, at, &mut bytes);
            bytes
        };
        match way {
            Source::Member(member) => read(member),
            Source::Rebuild(two) => {
                let [one, other] = two.map(read);
                one.iter()
                    .zip(other)
                    .map(|(one, other)| one ^ other)
                    .collect()
            }
        }
    }

    /// All records of a batch.
    fn records(&self, shape: &Shape, head: &Head, usable: Members, mistake: Mistake) -> Vec<Found> {
        let (crc, mut all) = (Fast(mistake), Vec::new());
        for column in head.data_columns() {
            let ways = source::columns(head, column, usable);
            let mut bodies = ways.map(|way| self.read_column(shape, way, head.place, head.units));
            let Some(bytes) = bodies.find(|bytes| head.is_body(column, bytes, &crc)) else {
                continue;
            };
            let records = Records::new(head, &bytes, &shape.layout, &crc);
            all.extend(records.map(|found| {
                let (at, record, payload) = found.unwrap();
                Found {
                    head: *head,
                    column,
                    at,
                    record,
                    payload: payload.to_vec(),
                }
            }));
        }
        all
    }
}
