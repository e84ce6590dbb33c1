// SPDX-License-Identifier: GPL-2.0

//! Does what `add_store` does before it writes.

use anyhow::{
    Context,
    Result, //
};
use rioc::proto::{
    entry::ENTRY_BYTES,
    log::{
        segments,
        walk,
        Table, //
    },
};
use rnbd_ec_tool::{
    checksum::Crc,
    media::Media, //
};
use seglog::{
    cursor::Cursor,
    layout::{
        Layout,
        COLUMN_BYTES_MAX, //
    },
    members::Members,
    recovery::Recovery,
    segments::Segment,
    superblock::Start, //
};

use super::{
    Objects,
    Report, //
};

/// The only member of a log.
const OWN: Members = Members::of(0);

/// A log that could be opened.
pub(super) struct Found {
    layout: Layout,
    pub(super) table: Table<Vec<[u8; ENTRY_BYTES]>, Vec<u64>>,
    start: Start,
    end: Cursor,
}

/// Loads the table, and follows the log. `None` if it cannot be opened; if it can be by `force=1`,
/// what is there then is checked. The report says so.
///
/// # Errors
///
/// Returns that there is too little memory.
pub(super) fn recover(media: &mut Media, slots: u32, report: &mut Report) -> Result<Option<Found>> {
    for is_forced in [false, true] {
        match try_to(media, slots, is_forced)? {
            Ok(found) => {
                let begin = found.start.cursor.sequence;
                report.log_batches = found.end.sequence.saturating_sub(begin);
                return Ok(Some(found));
            }
            Err(fault) => report.fail(fault),
        }
    }
    Ok(None)
}

fn zeroes<T: Clone>(zero: T, count: usize) -> Result<Vec<T>> {
    let mut all = Vec::new();
    let reserved = all.try_reserve_exact(count);
    let bytes = count.saturating_mul(size_of::<T>());
    reserved.with_context(|| format!("its table takes {bytes} bytes of memory"))?;
    all.resize(count, zero);
    Ok(all)
}

fn try_to(media: &mut Media, slots: u32, is_forced: bool) -> Result<Result<Found, String>> {
    let mut column = vec![0; COLUMN_BYTES_MAX];
    let columns = [&mut column[..], &mut [], &mut []];
    let mut recovery = match Recovery::examine(media, (OWN, is_forced), columns, &Crc) {
        Ok(recovery) => recovery,
        Err(fault) => return Ok(Err(fault.to_string())),
    };
    let layout = *recovery.layout();
    let mut table = Table {
        entries: zeroes([0; ENTRY_BYTES], slots as usize)?,
        uses: zeroes(0, layout.parts().segments as usize)?,
    };
    Ok(match walk(&mut recovery, &mut table) {
        Ok(()) => Ok(Found {
            layout,
            start: *recovery.start(),
            end: *recovery.opens_at(),
            table,
        }),
        Err(fault) => Err(fault.to_string()),
    })
}

/// Counts what is live in each segment, and whether one is free.
pub(super) fn count(found: &Found, objects: &Objects, report: &mut Report) {
    let all = vec![Segment::default(); found.layout.parts().segments as usize];
    let Ok(segments) = segments(all, &found.table, objects, &found.layout) else {
        report.fail("an extent is in no segment, or the word of a segment is not possible");
        return;
    };
    let free = segments.free_behind(&found.end, (&found.start, &found.layout));
    if free.is_none() {
        report.fail("no segment is free");
    }
}
