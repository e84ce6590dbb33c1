// SPDX-License-Identifier: GPL-2.0

//! Shows superblocks and batches in words.

use std::io::Write;

use anyhow::Result;
use seglog::members::MEMBERS;

use super::rows::{
    BatchRow,
    MediumRow,
    SuperblockRow, //
};

/// Prints what a medium has.
pub(super) fn print_medium(row: &MediumRow, out: &mut impl Write) -> Result<()> {
    writeln!(out, "{}: {} bytes", row.device, row.bytes)?;
    let both = row
        .slots
        .iter()
        .filter(|slot| slot.superblock.is_some())
        .count()
        == 2;
    for slot in &row.slots {
        let which = match (slot.counts, both) {
            (true, true) => "the newer one, which counts",
            (true, false) => "the one that counts",
            (false, _) => "older",
        };
        match (&slot.superblock, &slot.why) {
            (Some(superblock), _) => {
                writeln!(out, "  slot {}: {which}", slot.slot)?;
                print_superblock(superblock, out)?;
            }
            (None, why) => {
                let why = why.as_deref().unwrap_or_default();
                writeln!(out, "  slot {}: {why}", slot.slot)?;
            }
        }
    }
    if let Some(why) = &row.why {
        writeln!(out, "  not usable: {why}")?;
    }
    Ok(())
}

fn print_superblock(row: &SuperblockRow, out: &mut impl Write) -> Result<()> {
    let (layout, start) = (&row.layout, &row.start);
    writeln!(out, "    array: {}", row.uuid)?;
    writeln!(
        out,
        "    member: {} of {MEMBERS}, written {} times since it was made",
        row.member, row.writes
    )?;
    writeln!(
        out,
        "    layout: {} blocks; {} segments of {} units of {} bytes; pages of {} bytes",
        layout.blocks, layout.segments, layout.segment_units, layout.unit_bytes, layout.page_bytes
    )?;
    writeln!(out, "    epoch: {}, after {}", row.epoch, row.parent)?;
    writeln!(out, "    incarnation: {}", row.incarnation)?;
    writeln!(
        out,
        "    failed members: {}",
        match row.failed.as_slice() {
            [] => "none".to_owned(),
            failed => list(failed),
        }
    )?;
    writeln!(
        out,
        "    start: dump {} in area {}; batch {} at segment {} unit {} or at segment {}; \
         use {} of a segment, incarnation {}",
        start.dump,
        start.area,
        start.batch,
        start.segment,
        start.unit,
        start.next_segment,
        start.segment_use,
        start.incarnation
    )?;
    for (member, device) in row.devices.iter().enumerate() {
        let id = match device.id.trim_start_matches('0') {
            "" => "the first one".to_owned(),
            _ => format!("{}, instead of another one", device.id),
        };
        writeln!(
            out,
            "    device of member {member}: {id}, since use {}",
            device.since_use
        )?;
    }
    Ok(())
}

/// Prints a batch.
pub(super) fn print_batch(row: &BatchRow, out: &mut impl Write) -> Result<()> {
    write!(
        out,
        "batch {}: segment {} unit {}, {} units, {} on members {}; use {}, incarnation {}, \
         durable up to {}, next segment {}",
        row.batch,
        row.segment,
        row.unit,
        row.units,
        row.kind,
        list(&row.members),
        row.segment_use,
        row.incarnation,
        row.durable,
        row.next_segment
    )?;
    if !row.lacking.is_empty() {
        write!(out, "; no whole column on members {}", list(&row.lacking))?;
    }
    writeln!(
        out,
        "{}",
        if row.counts {
            ""
        } else {
            "; too few columns are whole"
        }
    )?;
    for record in &row.records {
        let last = record
            .block
            .saturating_add(u64::from(record.blocks).saturating_sub(1));
        let skipped = match record.skipped.as_slice() {
            [] => String::new(),
            skipped => format!(", without {}", list(skipped)),
        };
        writeln!(
            out,
            "  column {} byte {}: blocks {} to {last}: {}, {} bytes{skipped}",
            record.column, record.at, record.block, record.codec, record.bytes
        )?;
    }
    for column in &row.lost_columns {
        writeln!(out, "  column {column}: no member that was given has it")?;
    }
    Ok(())
}

fn list<T: ToString>(numbers: &[T]) -> String {
    let each: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    each.join(", ")
}
