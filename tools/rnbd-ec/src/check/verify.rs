// SPDX-License-Identifier: GPL-2.0

//! All that is live is read, by each way that there is to it.

use std::ops::Range;

use anyhow::{
    Context,
    Result, //
};
use seglog::{
    batch::{
        Head,
        Kind, //
    },
    collect::newest,
    layout::Place,
    members::{
        Members,
        DATA_COLUMNS, //
    },
    reading,
    record::Spot,
    source::{
        self,
        Source, //
    },
    table::{
        page_members,
        read_page,
        Table, //
    },
};

use super::{
    recover::{
        Columns,
        Found, //
    },
    Report,
};
use crate::{
    checksum::Crc,
    media::Media, //
};

/// A table of which nothing is kept.
struct Nothing;

impl Table for Nothing {
    fn word(&self, _: u64) -> u64 {
        0
    }

    fn set(&mut self, _: u64, _: u64) {}
}

/// Blocks that follow each other, and have one record.
struct Run {
    first: u64,
    count: u32,
    spot: Spot,
}

/// A batch whose columns were read.
struct Batch {
    units: Range<u64>,
    /// The members whose columns are not whole.
    bad: Members,
    /// The ones of `bad` to which the next assembly gives their columns.
    pending: Members,
}

/// Reads records by each way that there is to them.
struct Reader<'a> {
    media: &'a mut Media,
    found: &'a Found,
    report: &'a mut Report,
    columns: Columns,
    memory: [Vec<u8>; DATA_COLUMNS],
}

/// Reads all that is live, and notes what is wrong.
///
/// # Errors
///
/// Returns that there is too little memory.
pub(super) fn verify(
    media: &mut Media,
    found: &Found,
    report: &mut Report,
    mut progress: impl FnMut(usize, usize),
) -> Result<()> {
    let layout = &found.layout;
    let memory = || vec![0; reading::record_bytes(layout)];
    let mut reader = Reader {
        media,
        found,
        report,
        columns: Columns::new(layout),
        memory: [memory(), memory()],
    };
    reader.pages();
    let runs = reader.runs()?;
    let mut rest = runs.as_slice();
    while let Some(run) = rest.first() {
        let Some(spot) = reader.spot(*run) else { break };
        let is_here = |first: &u64| {
            let other = reader.spot(*first);
            other.is_some_and(|other| other.segment == spot.segment)
        };
        let (here, others) = rest.split_at(rest.partition_point(is_here));
        reader.segment(spot.segment, here);
        rest = others;
        progress(runs.len().saturating_sub(rest.len()), runs.len());
    }
    Ok(())
}

impl Reader<'_> {
    fn spot(&self, block: u64) -> Option<Spot> {
        self.found.words.spot(block).ok().flatten()
    }

    /// Reads both copies of each page of the table.
    fn pages(&mut self) {
        let Found {
            layout,
            tag,
            start,
            in_sync,
            ..
        } = self.found;
        if start.generation == 0 {
            return;
        }
        let mut bytes = vec![0; layout.parts().page_bytes as usize];
        for page in 0..layout.pages() {
            let at = layout.page(start.area, page);
            for member in page_members(page).and(*in_sync).iter() {
                let medium = self.media.get(member);
                let is_read = medium.is_some_and(|m| m.read(at, &mut bytes).is_ok());
                let with = (layout, *tag);
                let of = (page, start);
                if is_read && read_page(&bytes, of, &mut Nothing, with, &Crc) {
                    continue;
                }
                self.report.each(Members::of(member), |member| {
                    member.wrong_pages = member.wrong_pages.saturating_add(1);
                });
                self.report.note(|| {
                    format!("member {member}: byte {at}: page {page} of the table is damaged")
                });
            }
        }
    }

    /// Returns the first blocks of what has a record, in the order of the segments. Each run is at
    /// least one block, and has its record in one place.
    fn runs(&mut self) -> Result<Vec<u64>> {
        let mut runs = Vec::new();
        let blocks = self.found.layout.parts().entries;
        let mut next = 0;
        while next < blocks {
            match self.found.words.spot(next) {
                Ok(None) => next = next.saturating_add(1),
                Ok(Some(_)) => {
                    runs.try_reserve(1)
                        .context("there is too little memory for what is live")?;
                    runs.push(next);
                    next = next.saturating_add(self.run(next).map_or(1, |run| run.count.into()));
                }
                Err(_) => {
                    let block = next;
                    self.report.lose(block, 1);
                    self.report
                        .note(|| format!("block {block}: its entry in the table makes no sense"));
                    next = next.saturating_add(1);
                }
            }
        }
        runs.sort_unstable_by_key(|first| {
            let spot = self.spot(*first);
            spot.map(|spot| (spot.segment, spot.column, spot.offset))
        });
        Ok(runs)
    }

    /// Returns the run that begins with a block.
    fn run(&self, first: u64) -> Option<Run> {
        let spot = self.spot(first)?;
        let is_next = |count: &u32| {
            let next = self.spot(first.saturating_add((*count).into()));
            next == Some(Spot {
                block: spot.block.saturating_add(*count),
                ..spot
            })
        };
        let count = (1..spot.blocks).find(|count| !is_next(count));
        let count = count.unwrap_or(spot.blocks);
        Some(Run { first, count, spot })
    }

    /// Reads what is live in a segment.
    fn segment(&mut self, segment: u32, runs: &[u64]) {
        let of = self.found.words.members(segment);
        self.report.segments.live = self.report.segments.live.saturating_add(1);
        self.report.each(Members::ALL.minus(of), |member| {
            member.lacking_segments = member.lacking_segments.saturating_add(1);
        });
        let usable = of.and(self.found.in_sync);
        let batches = self.batches(segment, usable);
        for first in runs {
            if let Some(run) = self.run(*first) {
                self.record(&run, usable, &batches);
            }
        }
    }

    /// Reads the batches of a segment.
    fn batches(&mut self, segment: u32, usable: Members) -> Vec<Batch> {
        let (layout, tag) = (&self.found.layout, self.found.tag);
        let of = self.found.words.segment(segment).unwrap_or_default();
        let units = layout.parts().segment_units;
        let (mut batches, mut unit) = (Vec::new(), 0);
        while unit < units {
            let place = Place { segment, unit };
            let [first, _, _] = self.columns.scratch();
            let first = first.get_mut(..layout.unit_bytes()).unwrap_or_default();
            let heads = reading::heads(self.media, (place, usable), first, (layout, tag), &Crc);
            // Behind the end of the log there may be what a crash has left.
            let heads = heads.iter().flatten();
            let heads = heads.filter(|(head, _)| head.sequence < self.found.end);
            let head = newest(heads.clone().map(|(head, _)| *head), of.sequence);
            let hash = heads.filter(|(other, _)| Some(*other) == head);
            let hash = hash.map(|(_, hash)| *hash).next();
            let Some((head, hash)) = head.zip(hash) else {
                unit = unit.saturating_add(1);
                continue;
            };
            batches.push(self.batch((&head, hash), usable));
            unit = unit.saturating_add(head.units.into());
        }
        batches
    }

    /// Reads the columns of a batch.
    fn batch(&mut self, (head, hash): (&Head, u32), usable: Members) -> Batch {
        let (layout, tag) = (&self.found.layout, self.found.tag);
        let mut scratch = self.columns.scratch();
        let with = (layout, tag);
        let read = reading::columns(self.media, (head, hash), usable, &mut scratch, with, &Crc);
        let whole = read.map(|columns| columns.whole).unwrap_or_default();
        let pending = self.found.pending.get(&head.place).copied();
        let pending = pending.unwrap_or_default();
        let bad = head.used.and(usable).minus(whole);
        let is_striped = head.kind == Kind::Striped && whole == Members::ALL;
        let is_wrong = is_striped && !reading::is_parity(head, &scratch, layout);
        let at = layout.at(head.place).unwrap_or_default();
        let report = &mut *self.report;
        report.batches = report.batches.saturating_add(1);
        let wrong = bad.minus(pending);
        report.each(wrong, |member| {
            member.wrong_columns = member.wrong_columns.saturating_add(1);
        });
        for member in wrong.iter() {
            report.note(|| {
                format!(
                    "member {member}: byte {at}: its column of batch {} in segment {} is damaged",
                    head.sequence, head.place.segment
                )
            });
        }
        if is_wrong {
            report.wrong_parity = report.wrong_parity.saturating_add(1);
            report.note(|| {
                format!(
                    "batch {} in segment {}: its columns are whole, and its parity is not theirs",
                    head.sequence, head.place.segment
                )
            });
        }
        let start = u64::from(head.place.unit);
        Batch {
            units: start..start.saturating_add(head.units.into()),
            bad,
            pending,
        }
    }

    /// Reads a record by each way.
    fn record(&mut self, run: &Run, usable: Members, batches: &[Batch]) {
        let (layout, spot) = (&self.found.layout, &run.spot);
        let unit = spot.offset.checked_div(layout.unit_bytes() as u64);
        let mut each = batches.iter();
        let batch = each.find(|batch| unit.is_some_and(|unit| batch.units.contains(&unit)));
        let (bad, pending) = batch.map_or_else(Default::default, |b| (b.bad, b.pending));
        let report = &mut *self.report;
        report.records = report.records.saturating_add(1);
        report.live_blocks = report.live_blocks.saturating_add(run.count.into());
        let (first, segment) = (run.first, spot.segment);
        if batch.is_none() {
            report.headless_records = report.headless_records.saturating_add(1);
            report.note(|| {
                format!("block {first}: no member has the head of its batch in segment {segment}")
            });
        }
        let mut is_there = false;
        for way in source::sources(spot, usable) {
            let of: Members = match way {
                Source::Member(member) => Members::of(member),
                Source::Rebuild(members) => members.into_iter().collect(),
            };
            if !of.and(pending).is_empty() {
                continue;
            }
            report.ways = report.ways.saturating_add(1);
            let [one, other] = &mut self.memory;
            let read = reading::record(self.media, (spot, way), [one, other], layout);
            let blocks = (run.first, run.count);
            let found = read
                .ok()
                .and_then(|read| spot.record(blocks, read, layout, &Crc));
            if found.is_some() {
                is_there = true;
                continue;
            }
            match way {
                Source::Member(_) => report.each(of, |member| {
                    member.wrong_records = member.wrong_records.saturating_add(1);
                }),
                Source::Rebuild(_) if of.and(bad).is_empty() => {
                    report.wrong_rebuilds = report.wrong_rebuilds.saturating_add(1);
                }
                // Its columns are named.
                Source::Rebuild(_) => {}
            }
        }
        if !is_there {
            report.lose(first, run.count.into());
            report.note(|| format!("block {first}: no member has its record in segment {segment}"));
        }
    }
}
