// SPDX-License-Identifier: GPL-2.0

//! Whether an array can be assembled from its members, and whether all that is live can be read, by
//! each way that there is to it. Nothing is written.

mod identify;
mod recover;
mod verify;

use anyhow::Result;
use seglog::{
    members::{
        Members,
        MEMBERS, //
    },
    superblock::Superblock, //
};
use serde::Serialize;

use crate::{
    media::Medium,
    show, //
};

/// Most times that something wrong is named; it is counted always.
const NAMED_MAX: usize = 20;

/// Identity and shape of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All members are in sync, and have all that they should.
    #[default]
    Clean,
    /// Nothing is lost, and something is on fewer members than it should be.
    Degraded,
    /// Blocks are lost, or the array cannot be assembled.
    Damaged,
}

/// State of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Was not given.
    #[default]
    Missing,
    /// Counts as in sync.
    InSync,
    /// Has failed, or was absent, and has to be resynchronised.
    Stale,
    /// Has a device that cannot be used.
    Unusable,
}

/// Finding of a member.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Member {
    /// Its number.
    pub member: usize,
    /// Its device.
    pub device: Option<String>,
    /// Its state.
    pub state: State,
    /// The reason why its device cannot be used.
    pub why: Option<String>,
    /// The slots of its superblock that are damaged.
    pub damaged_slots: Vec<u8>,
    /// Segments with something live of which it has no columns.
    pub lacking_segments: u64,
    /// Columns of the log that the next assembly gives it.
    pub log_columns: u64,
    /// Columns with something live that are not what was written, or cannot be read.
    pub wrong_columns: u64,
    /// Records that it gives otherwise than they were written, or not at all.
    pub wrong_records: u64,
    /// Pages of the table that it gives otherwise than they were written, or not at all.
    pub wrong_pages: u64,
}

impl Member {
    /// Whether it has all that it should.
    fn is_whole(&self) -> bool {
        self.state == State::InSync
            && self.damaged_slots.is_empty()
            && self.lacking_segments == 0
            && self.log_columns == 0
            && self.wrong_columns == 0
            && self.wrong_records == 0
            && self.wrong_pages == 0
    }
}

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocks {
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

/// Counts of the segments.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SegmentCounts {
    /// All of them.
    pub all: u32,
    /// Segments with something live.
    pub live: u32,
    /// Segments that may be written as soon as the array is assembled.
    pub free: u32,
}

/// Finding of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Verdict of the check.
    pub verdict: Verdict,
    /// The array.
    pub uuid: Option<String>,
    /// The blocks of its disk.
    pub blocks: u64,
    /// Its members.
    pub members: Vec<Member>,
    /// Batches of the log that an assembly follows.
    pub log_batches: u64,
    /// Its segments.
    pub segments: SegmentCounts,
    /// Batches in segments with something live.
    pub batches: u64,
    /// Blocks that have a record.
    pub live_blocks: u64,
    /// Their records, as often as what follows each other is in one.
    pub records: u64,
    /// The ways by which these were read.
    pub ways: u64,
    /// Batches of which all columns are whole and do not fit each other.
    pub wrong_parity: u64,
    /// Records that cannot be rebuilt, though all columns are whole.
    pub wrong_rebuilds: u64,
    /// Records of batches of which no member has the head: they are read, and cannot be moved.
    pub headless_records: u64,
    /// Blocks that no way gives as they were written.
    pub lost_blocks: u64,
    /// The ranges of lost blocks.
    pub lost: Vec<Blocks>,
    /// The reason why the array cannot be assembled.
    pub fault: Option<String>,
    /// Words for what is wrong, the first of it.
    pub notes: Vec<String>,
}

impl Report {
    fn new() -> Self {
        let member = |member| Member {
            member,
            ..Member::default()
        };
        Self {
            members: (0..MEMBERS).map(member).collect(),
            ..Self::default()
        }
    }

    fn describe(&mut self, superblock: &Superblock) {
        self.uuid = Some(show::uuid(&superblock.uuid));
        self.blocks = superblock.layout.parts().entries;
        self.segments.all = superblock.layout.parts().segments;
    }

    /// Calls for each of some members.
    fn each(&mut self, members: Members, change: impl Fn(&mut Member)) {
        let each = self.members.iter_mut();
        each.filter(|m| members.contains(m.member)).for_each(change);
    }

    fn note(&mut self, note: impl FnOnce() -> String) {
        if self.notes.len() < NAMED_MAX {
            self.notes.push(note());
        }
    }

    /// Blocks are lost.
    fn lose(&mut self, first: u64, count: u64) {
        self.lost_blocks = self.lost_blocks.saturating_add(count);
        let last = first.saturating_add(count.saturating_sub(1));
        self.lost.push(Blocks { first, last });
    }

    /// Puts the blocks that are lost in their order.
    fn join_lost(&mut self) {
        self.lost.sort_unstable_by_key(|blocks| blocks.first);
        let mut joined: Vec<Blocks> = Vec::new();
        for next in self.lost.drain(..) {
            match joined.last_mut() {
                Some(before) if before.last.saturating_add(1) == next.first => {
                    before.last = next.last;
                }
                _ => joined.push(next),
            }
        }
        self.lost = joined;
    }

    fn judge(&mut self) {
        let is_whole = self.members.iter().all(Member::is_whole);
        let is_consistent =
            self.wrong_parity == 0 && self.wrong_rebuilds == 0 && self.headless_records == 0;
        self.verdict = if self.fault.is_some() || self.lost_blocks > 0 {
            Verdict::Damaged
        } else if is_whole && is_consistent {
            Verdict::Clean
        } else {
            Verdict::Degraded
        };
    }
}

/// Checks an array of which these are members, and tells `progress` now and then how many of so
/// many runs of blocks were read.
///
/// # Errors
///
/// Returns why this cannot be checked: what was given is not two or three members of one array, or
/// there is too little memory.
pub fn check(media: Vec<Medium>, progress: impl FnMut(usize, usize)) -> Result<Report> {
    let mut report = Report::new();
    let is_all = media.len() == MEMBERS;
    let (mut media, layout) = identify::identify(media, &mut report)?;
    if let Some(layout) = layout {
        let found = recover::recover(&mut media, &layout, &mut report, is_all)?;
        if let Some(found) = found {
            verify::verify(&mut media, &found, &mut report, progress)?;
        }
    } else {
        report.fault = Some("no device has a superblock that can be used".to_owned());
    }
    if report.fault.is_some() && report.blocks > 0 {
        report.lose(0, report.blocks);
    }
    report.join_lost();
    report.judge();
    Ok(report)
}
