// SPDX-License-Identifier: GPL-2.0

//! Does what an assembly of the members would do before it writes.

use std::{
    collections::HashMap,
    io, //
};

use anyhow::{
    Context,
    Result, //
};
use seglog::{
    fault::Fault,
    layout::{
        Layout,
        Place, //
    },
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    recovery::Recovery,
    segments::{
        Segment,
        Segments, //
    },
    superblock::Start,
    ArrayTag, //
};

use super::{
    Report,
    State, //
};
use crate::{
    checksum::Crc,
    media::Media,
    words::Words, //
};

/// Result of such an assembly.
pub(super) struct Found {
    pub(super) layout: Layout,
    pub(super) tag: ArrayTag,
    pub(super) in_sync: Members,
    pub(super) start: Start,
    /// The number of the batch behind the log.
    pub(super) end: u64,
    pub(super) words: Words,
    /// The members that the next assembly gives their column of the batch at a place.
    pub(super) pending: HashMap<Place, Members>,
}

/// Memory for a column of each member.
pub(super) struct Columns([Vec<u8>; MEMBERS]);

impl Columns {
    pub(super) fn new(layout: &Layout) -> Self {
        let units = layout.column_units_max() as usize;
        let bytes = units.saturating_mul(layout.unit_bytes());
        Self([(); MEMBERS].map(|()| vec![0; bytes]))
    }

    pub(super) fn scratch(&mut self) -> [&mut [u8]; MEMBERS] {
        self.0.each_mut().map(Vec::as_mut_slice)
    }
}

/// Does what an assembly does before it writes. A member that it cannot read where it has to is
/// left out if the others suffice. `None` if the array cannot be assembled, which the report says.
///
/// # Errors
///
/// Returns that there is too little memory, or that too few members were given.
pub(super) fn recover(
    media: &mut Media,
    layout: &Layout,
    report: &mut Report,
    is_all: bool,
) -> Result<Option<Found>> {
    let mut present = media.present();
    let fault = loop {
        let fault = match try_to((media, present), layout, report)? {
            Ok(found) => return Ok(Some(found)),
            Err(fault) => fault,
        };
        let culprit = match &fault {
            Fault::Unreadable { member, .. }
            | Fault::Io(member, _)
            | Fault::Superblock(member, _) => Some(Members::of(*member)),
            _ => None,
        };
        let Some(culprit) = culprit.filter(|_| present.count() > DATA_COLUMNS) else {
            break fault;
        };
        present = present.minus(culprit);
        let why = fault.to_string();
        report.note(|| why.clone());
        report.each(culprit, |member| {
            member.state = State::Unusable;
            member.why = Some(why.clone());
        });
    };
    if matches!(fault, Fault::NoQuorum(_)) && !is_all {
        return Err(anyhow::anyhow!("{fault}"));
    }
    report.fault = Some(fault.to_string());
    Ok(None)
}

fn try_to(
    (media, present): (&mut Media, Members),
    layout: &Layout,
    report: &mut Report,
) -> Result<Result<Found, Fault<io::Error>>> {
    let mut columns = Columns::new(layout);
    let mut recovery = match Recovery::examine(media, (present, false), columns.scratch(), &Crc) {
        Ok(recovery) => recovery,
        Err(fault) => return Ok(Err(fault)),
    };
    note_states(present, recovery.in_sync(), report);
    let bytes = layout.words().saturating_mul(8);
    let words = Words::new(layout);
    let mut words = words.with_context(|| format!("its table takes {bytes} bytes of memory"))?;
    if let Err(fault) = recovery.walk(&mut words) {
        return Ok(Err(fault));
    }
    // The log may have said who is.
    let in_sync = recovery.in_sync();
    note_states(present, in_sync, report);
    let (mut pending, mut batches) = (HashMap::new(), 0u64);
    let followed = recovery.follow(|head, missing| {
        batches = batches.saturating_add(1);
        if !missing.is_empty() {
            pending.insert(head.place, missing);
        }
    });
    if let Err(fault) = followed {
        return Ok(Err(fault));
    }
    for missing in pending.values() {
        report.each(*missing, |member| {
            member.log_columns = member.log_columns.saturating_add(1);
        });
    }
    let start = *recovery.start();
    report.log_batches = batches;
    report.segments.free = free(&recovery, &words);
    Ok(Ok(Found {
        layout: *layout,
        tag: recovery.tag(),
        in_sync,
        start,
        end: start.cursor.sequence.saturating_add(batches),
        words,
        pending,
    }))
}

/// Notes which of the members that are there are in sync.
fn note_states(present: Members, in_sync: Members, report: &mut Report) {
    report.each(present, |member| {
        let is_in_sync = in_sync.contains(member.member);
        member.state = if is_in_sync {
            State::InSync
        } else {
            State::Stale
        };
    });
}

/// Returns how many segments may be written when the array is assembled; 0 if its table makes no
/// sense.
fn free(recovery: &Recovery<'_, Media, Crc>, words: &Words) -> u32 {
    let layout = recovery.layout();
    let all = layout.parts().segments;
    let memory = vec![Segment::default(); all as usize];
    let Ok(segments) = Segments::count(memory, words, layout) else {
        return 0;
    };
    let end = (recovery.opens_at(), u64::MAX);
    let with = (recovery.start(), layout);
    let (mut least, mut most) = (0, all);
    while least < most {
        let middle = least.saturating_add(most.saturating_sub(least).div_ceil(2));
        if segments.has_free(middle as usize, end, with) {
            least = middle;
        } else {
            most = middle.saturating_sub(1);
        }
    }
    least
}
