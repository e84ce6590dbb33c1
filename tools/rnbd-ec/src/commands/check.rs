// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec check`.

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

use anyhow::Result;

use super::Status;
use crate::{
    check::{
        check as check_members,
        Blocks,
        Member,
        Report,
        State,
        Verdict, //
    },
    media::{
        Medium,
        Sharing, //
    },
    show::{
        self,
        count,
        Output, //
    },
};

/// Progress is told if it takes longer, and then as often.
const PATIENCE: Duration = Duration::from_secs(2);
/// Ranges of lost blocks that are listed; all are counted.
const LISTED_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The members, in any order: block devices or files
    #[arg(required = true, num_args = 2..=3)]
    device: Vec<PathBuf>,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Tells how far it is, to a terminal, if it takes long.
struct Progress {
    due: Instant,
    is_told: bool,
}

impl Progress {
    fn tell(&mut self, done: usize, all: usize) {
        if Instant::now() < self.due || !io::stderr().is_terminal() {
            return;
        }
        self.due = Instant::now() + PATIENCE;
        self.is_told = true;
        let percent = done.saturating_mul(100).checked_div(all);
        eprint!("\r{done} of {all} records, {} % ", percent.unwrap_or(100));
    }
}

/// Checks an array.
///
/// # Errors
///
/// Returns why it cannot be checked.
pub(super) fn check(args: &Args, out: &mut impl Write) -> Result<Status> {
    let media = Medium::open_all(&args.device, Sharing::Exclusive)?;
    let mut progress = Progress {
        due: Instant::now() + PATIENCE,
        is_told: false,
    };
    let report = check_members(media, |done, all| progress.tell(done, all));
    if progress.is_told {
        eprintln!();
    }
    let report = report?;
    match args.output {
        Output::Table => out.write_all(table(&report).as_bytes())?,
        Output::Json => writeln!(out, "{}", show::json(&report)?)?,
    }
    Ok(report.verdict.into())
}

/// Returns what a member is, in words.
fn state(member: &Member) -> &'static str {
    match member.state {
        State::Missing => "missing",
        State::InSync => "in sync",
        State::Stale => "stale: it has to be resynchronised",
        State::Unusable => "cannot be used",
    }
}

/// Returns what a member lacks, in words.
fn lacks(member: &Member) -> String {
    let slots = member.damaged_slots.iter();
    let slots = slots.map(|slot| format!("slot {slot} of its superblock"));
    let counts = [
        (member.lacking_segments, "segment", "segments"),
        (
            member.log_columns,
            "column of the log",
            "columns of the log",
        ),
        (member.wrong_columns, "damaged column", "damaged columns"),
        (member.wrong_records, "damaged record", "damaged records"),
        (
            member.wrong_pages,
            "damaged page of the table",
            "damaged pages of the table",
        ),
    ];
    let counts = counts.into_iter().filter(|(number, ..)| *number > 0);
    let counts = counts.map(|(number, one, several)| count(number, one, several));
    let each = member.why.iter().cloned().chain(slots).chain(counts);
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        "nothing".to_owned()
    } else {
        each.join(", ")
    }
}

fn table(report: &Report) -> String {
    let segments = &report.segments;
    let mut text = format!(
        "array: {}\nblocks: {}, {} with data\nsegments: {}, {} with something live, {} free\n\
         log: {} followed\nread: {}, {} by {}\n",
        report.uuid.as_deref().unwrap_or("unknown"),
        report.blocks,
        report.live_blocks,
        segments.all,
        segments.live,
        segments.free,
        count(report.log_batches, "batch", "batches"),
        count(report.batches, "batch", "batches"),
        count(report.records, "record", "records"),
        count(report.ways, "way", "ways")
    );
    let head = ["member", "device", "state", "lacks"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(report.members.iter().map(|member| {
        let device = member.device.as_deref().unwrap_or("-");
        let number = member.member.to_string();
        vec![
            number,
            device.to_owned(),
            state(member).to_owned(),
            lacks(member),
        ]
    }));
    text.push_str(&show::table(&rows));
    let counts = [
        (
            report.wrong_parity,
            "batches whose parity is not that of their columns",
        ),
        (
            report.wrong_rebuilds,
            "records that cannot be rebuilt of whole columns",
        ),
        (
            report.headless_records,
            "records of batches without a head, which cannot be moved",
        ),
    ];
    for (number, what) in counts.into_iter().filter(|(number, _)| *number > 0) {
        text.push_str(&format!("{what}: {number}\n"));
    }
    for note in &report.notes {
        text.push_str(note);
        text.push('\n');
    }
    text + &verdict(report)
}

/// Returns the blocks that are lost, in words.
fn lost(report: &Report) -> String {
    let listed = report.lost.iter().take(LISTED_MAX);
    let mut listed: Vec<String> = listed
        .map(|Blocks { first, last }| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        })
        .collect();
    let more = report.lost.len().saturating_sub(LISTED_MAX) as u64;
    if more > 0 {
        listed.push(count(more, "other range", "other ranges"));
    }
    let blocks = count(report.lost_blocks, "block", "blocks");
    format!("{blocks}: {}", listed.join(", "))
}

/// Returns what it comes to, in words.
fn verdict(report: &Report) -> String {
    let fault = report.fault.as_ref();
    let fault = fault.map(|fault| format!("cannot be assembled: {fault}\n"));
    let lost = (report.lost_blocks > 0).then(|| format!("lost: {}\n", lost(report)));
    let verdict = match report.verdict {
        Verdict::Clean => "clean\n",
        Verdict::Degraded => "degraded: nothing is lost, and not all is on all members\n",
        Verdict::Damaged => "damaged\n",
    };
    fault.into_iter().chain(lost).collect::<String>() + verdict
}
