// SPDX-License-Identifier: GPL-2.0

//! Whether a log can be opened, and whether all blocks of its objects are what was written. It does
//! what `add_store` does before it writes, and reads each block. Nothing is written.

mod blocks;
mod recover;

use std::{
    collections::BTreeSet,
    hash::{
        BuildHasher,
        Hasher,
        RandomState, //
    },
};

use anyhow::{
    bail,
    Context,
    Result, //
};
use rioc::proto::{
    entry::{
        self,
        Entry, //
    },
    format,
    index::Index,
    slot::{
        Slot,
        NONE, //
    },
};
use rnbd_ec_tool::{
    media::{
        Media,
        Medium, //
    },
    show,
    slots::{
        Slots,
        Unusable, //
    },
};
use seglog::superblock::Refusal;
use serde::Serialize;

use crate::object::Object;

/// The index of a log.
pub type Objects = Index<Vec<Slot>, Vec<u32>>;

/// Most times that something wrong is named; it is counted always.
const NAMED_MAX: usize = 20;

/// Result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All is as it was written.
    #[default]
    Clean,
    /// A part of it is not.
    Damaged,
}

/// Bytes of an object that are lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Lost {
    /// The object.
    pub object: Object,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// Finding of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Verdict of the check.
    pub verdict: Verdict,
    /// The log.
    pub uuid: Option<String>,
    /// The slots of its superblock that are damaged.
    pub damaged_slots: Vec<u8>,
    /// The batches that `add_store` would follow.
    pub log_batches: u64,
    /// The objects.
    pub objects: u64,
    /// The blocks of 4 KiB that are stored, as often as they are shared.
    pub blocks: u64,
    /// Blocks that are not what was written, or cannot be read.
    pub damaged_blocks: u64,
    /// The bytes of objects that are in these.
    pub lost: Vec<Lost>,
    /// The reason why the log cannot be opened.
    pub fault: Option<String>,
    /// Words for what is wrong, the first of it.
    pub notes: Vec<String>,
}

impl Report {
    fn note(&mut self, note: impl FnOnce() -> String) {
        if self.notes.len() < NAMED_MAX {
            self.notes.push(note());
        }
    }

    /// Notes why the log cannot be opened; the first reason counts.
    fn fail(&mut self, why: impl ToString) {
        let _ = self.fault.get_or_insert_with(|| why.to_string());
    }

    fn judge(mut self) -> Self {
        let is_whole =
            self.fault.is_none() && self.damaged_slots.is_empty() && self.damaged_blocks == 0;
        if !is_whole {
            self.verdict = Verdict::Damaged;
        }
        self
    }
}

/// Makes the index of the entries of a table; `None` if they make no sense, which the report says.
pub fn index(entries: &[Entry], report: &mut Report) -> Option<Objects> {
    let mut slots = Vec::with_capacity(entries.len());
    for (number, entry) in entries.iter().enumerate() {
        match entry::slot(entry) {
            Ok(slot) => slots.push(slot),
            Err(_) => {
                report.fail(format_args!("the entry of slot {number} makes no sense"));
                return None;
            }
        }
    }
    let buckets = vec![NONE; (slots.len() / 4).max(1)];
    // Random, as who has chosen the names of the objects must not know it.
    let key = [(); 2].map(|()| RandomState::new().build_hasher().finish());
    match Index::restore(slots, buckets, key) {
        Ok(index) => Some(index),
        Err(damage) => {
            report.fail(damage);
            None
        }
    }
}

/// Checks a log, and tells `progress` now and then how many of so many blocks were read.
///
/// # Errors
///
/// Returns why it cannot be checked: it is no log of objects, or there is too little memory.
pub fn check(medium: Medium, progress: impl FnMut(u64, u64)) -> Result<Report> {
    let mut report = Report::default();
    let slots = Slots::read(&medium);
    let damaged = slots.iter().filter(|(_, slot)| slot.is_damaged());
    report.damaged_slots = damaged.map(|(number, _)| number).collect();
    let layout = match slots.superblock() {
        Ok(superblock) => {
            report.uuid = Some(show::uuid(&superblock.uuid));
            superblock.layout
        }
        Err(why @ Unusable::Refused(Refusal::NotFormatted | Refusal::OtherVersion(_))) => {
            bail!("no log of rioc: {why}")
        }
        Err(why) => {
            report.fail(why);
            return Ok(report.judge());
        }
    };
    let count = format::slots(&layout);
    let count = count.context("a member of an array, and no log of rioc: rnbd-ec check")?;
    let mut media = Media::default();
    media.set(0, medium);
    if let Some(found) = recover::recover(&mut media, count, &mut report)? {
        let objects = index(&found.table.entries, &mut report);
        if let Some(objects) = objects {
            recover::count(&found, &objects, &mut report);
            blocks::verify(&mut media, &objects, &mut report, progress);
        }
    }
    Ok(report.judge())
}

/// Joins what follows each other.
fn joined(lost: BTreeSet<Lost>) -> Vec<Lost> {
    let mut all: Vec<Lost> = Vec::new();
    for next in lost {
        match all.last_mut() {
            Some(last)
                if last.object == next.object
                    && last.offset.saturating_add(last.bytes) == next.offset =>
            {
                last.bytes = last.bytes.saturating_add(next.bytes);
            }
            _ => all.push(next),
        }
    }
    all
}
