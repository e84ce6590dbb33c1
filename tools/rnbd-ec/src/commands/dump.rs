// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec dump`.

mod print;
mod rows;

use std::{
    io::Write,
    path::PathBuf, //
};

use anyhow::{
    bail,
    Result, //
};
use seglog::{
    members::MEMBERS,
    superblock::Superblock, //
};
use serde::Serialize;

use self::{
    print::{
        print_batch,
        print_medium, //
    },
    rows::{
        BatchRow,
        MediumRow, //
    },
};
use super::Status;
use crate::{
    lenient::Log,
    media::{
        Media,
        Medium,
        Sharing, //
    },
    show::{
        self,
        Output, //
    },
    slots::Slots,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Block devices or files, also such that are in use
    #[arg(required = true)]
    device: Vec<PathBuf>,
    /// Lists the batches of the log, and their records; the devices are of one array then
    #[arg(long)]
    log: bool,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Serialize)]
struct Dump {
    devices: Vec<MediumRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Vec<BatchRow>>,
}

/// Shows what is on devices.
///
/// # Errors
///
/// Returns which cannot be opened, or why the log cannot be listed.
pub(super) fn dump(args: &Args, out: &mut impl Write) -> Result<Status> {
    let media = Medium::open_all(&args.device, Sharing::Shared)?;
    let (mut dump, mut status) = (
        Dump {
            devices: Vec::new(),
            log: None,
        },
        Status::Clean,
    );
    let mut known = Vec::new();
    for medium in media {
        let slots = Slots::read(&medium);
        dump.devices.push(MediumRow::new(&medium, &slots));
        if slots.iter().any(|(_, slot)| slot.is_damaged()) {
            status = status.max(Status::Degraded);
        }
        match slots.superblock() {
            Ok(superblock) => known.push((superblock, medium)),
            Err(_) => status = Status::Damaged,
        }
    }
    if args.output == Output::Table {
        dump.devices
            .iter()
            .try_for_each(|row| print_medium(row, out))?;
    }
    if args.log {
        let mut rows = Vec::new();
        let is_whole = list(known, |row| {
            match args.output {
                Output::Table => print_batch(&row, out)?,
                Output::Json => rows.push(row),
            }
            Ok(())
        })?;
        dump.log = Some(rows);
        if !is_whole {
            status = status.max(Status::Degraded);
        }
    }
    if args.output == Output::Json {
        writeln!(out, "{}", show::json(&dump)?)?;
    }
    Ok(status)
}

/// Lists the log; returns whether the members that were given have all columns of it that they
/// should.
fn list(
    known: Vec<(Superblock, Medium)>,
    mut show: impl FnMut(BatchRow) -> Result<()>,
) -> Result<bool> {
    let (mut media, mut superblocks) = (Media::default(), [None; MEMBERS]);
    let mut first: Option<(Superblock, PathBuf)> = None;
    for (superblock, medium) in known {
        let path = medium.path.clone();
        let (of, before) = first.get_or_insert_with(|| (superblock, path.clone()));
        if !of.is_of_same_array(&superblock) {
            let (one, other) = (before.display(), path.display());
            bail!("{one} and {other} are of two arrays: --log takes the members of one");
        }
        let number = superblock.member;
        if let Some(other) = media.get(number) {
            let (one, other) = (other.path.display(), path.display());
            bail!("{one} and {other} are both member {number}: --log takes one of them");
        }
        if let Some(to) = superblocks.get_mut(number) {
            *to = Some(superblock);
        }
        media.set(number, medium);
    }
    let Some(mut log) = Log::new(&mut media, &superblocks) else {
        bail!("no device has a superblock that can be used: --log lists nothing");
    };
    let mut is_whole = true;
    log.follow(|batch| {
        is_whole &= batch.lacking.is_empty();
        show(batch.into())
    })?;
    Ok(is_whole)
}
