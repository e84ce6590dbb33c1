// SPDX-License-Identifier: GPL-2.0

//! `rioc check`.

use std::{
    io::{
        self,
        IsTerminal,
        Write, //
    },
    path::PathBuf,
    time::{
        Duration,
        Instant, //
    },
};

use anyhow::{
    Context,
    Result, //
};
use rnbd_ec_tool::{
    media::{
        Medium,
        Sharing, //
    },
    show::count,
};

use crate::{
    check::{
        check as check_log,
        Report,
        Verdict, //
    },
    show::{
        print,
        Output, //
    },
};

/// The exit codes of fsck(8).
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;
/// Progress is told if it takes longer, and then as often.
const PATIENCE: Duration = Duration::from_secs(2);
/// Ranges of lost bytes that are listed; JSON has all.
const LISTED_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The log: a block device that no store uses, or a file
    log: PathBuf,
}

/// Tells how far it is, to a terminal, if it takes long.
struct Progress {
    due: Instant,
    is_told: bool,
}

impl Progress {
    fn tell(&mut self, done: u64, all: u64) {
        if Instant::now() < self.due || !io::stderr().is_terminal() {
            return;
        }
        self.due = Instant::now().checked_add(PATIENCE).unwrap_or(self.due);
        self.is_told = true;
        let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100);
        eprint!("\r{done} of {all} blocks, {percent} % ");
        let _ = io::stderr().flush();
    }
}

/// Checks a log; returns the exit status. One that cannot be checked is told here, since its status
/// is another one than that of other commands.
///
/// # Errors
///
/// Returns that nothing can be printed.
pub(super) fn check(args: &Args, output: Output) -> Result<u8> {
    let report = match try_to(args) {
        Ok(report) => report,
        Err(why) => {
            eprintln!("rioc: {why:#}");
            return Ok(OPERATIONAL_ERROR);
        }
    };
    print(output, &report, text(&report).trim_end())?;
    Ok(match report.verdict {
        Verdict::Clean => 0,
        Verdict::Damaged => ERRORS_LEFT,
    })
}

fn try_to(args: &Args) -> Result<Report> {
    let path = || args.log.display().to_string();
    let medium = Medium::open(&args.log, Sharing::Exclusive).with_context(path)?;
    let mut progress = Progress {
        due: Instant::now() + PATIENCE,
        is_told: false,
    };
    let report = check_log(medium, |done, all| progress.tell(done, all));
    if progress.is_told {
        eprintln!();
    }
    report.with_context(path)
}

/// Returns a report in words.
fn text(report: &Report) -> String {
    let mut text = format!("log: {}\n", report.uuid.as_deref().unwrap_or("unknown"));
    text += &format!(
        "read: {}, {} of {}\n",
        count(report.log_batches, "batch", "batches"),
        count(report.blocks, "block", "blocks"),
        count(report.objects, "object", "objects"),
    );
    for slot in &report.damaged_slots {
        text += &format!("slot {slot} of the superblock is damaged\n");
    }
    for note in &report.notes {
        text += &format!("{note}\n");
    }
    let more = report
        .damaged_blocks
        .saturating_sub(report.notes.len() as u64);
    if more > 0 {
        text += &format!("damaged too: {}\n", count(more, "block", "blocks"));
    }
    for lost in report.lost.iter().take(LISTED_MAX) {
        let bytes = count(lost.bytes, "byte", "bytes");
        text += &format!(
            "lost: object {}: {bytes} from {} on\n",
            lost.object, lost.offset
        );
    }
    let more = report.lost.len().saturating_sub(LISTED_MAX) as u64;
    if more > 0 {
        text += &format!("lost: {}\n", count(more, "other range", "other ranges"));
    }
    if let Some(fault) = &report.fault {
        text += &format!("cannot be opened: {fault}\n");
    }
    text + match report.verdict {
        Verdict::Clean => "clean\n",
        Verdict::Damaged => "damaged\n",
    }
}
