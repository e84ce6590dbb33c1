// SPDX-License-Identifier: GPL-2.0

//! The records in a kernel log.

use std::{
    collections::BTreeMap,
    fmt, //
};

use proto::common::record::Machine;

use crate::{
    admin_lock::Taken, //
    availability::Session,
    path::Path,
    replay::{
        Replay,
        Rules, //
    },
    server_path::ServerPath,
};

/// A kind of machine in a driver.
struct Kind {
    module: &'static str,
    machine: &'static str,
    judge: fn(&Lines<'_>, &mut Verdict) -> Result<(), String>,
}

const fn kind<R: Rules>(module: &'static str) -> Kind {
    Kind {
        module,
        machine: R::Machine::NAME,
        judge: judge_record::<R>,
    }
}

static KINDS: &[Kind] = &[
    kind::<Path>("rtrs_client"),
    kind::<Session>("rtrs_client"),
    kind::<Taken>("rnbd_client"),
    kind::<ServerPath>("rtrs_server"),
];

/// The lines of a record, by their numbers.
type Lines<'a> = BTreeMap<u32, &'a str>;

/// The result of the replay of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Machines that were replayed from their beginning to the end of the log.
    pub whole: usize,
    /// Machines of which lines are missing: what is before the first missing line was replayed.
    pub cut: usize,
    /// The lines that were replayed.
    pub lines: usize,
    /// The places where record and model disagree, in words.
    pub wrong: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for wrong in &self.wrong {
            writeln!(f, "{wrong}")?;
        }
        let (whole, cut, lines) = (self.whole, self.cut, self.lines);
        write!(f, "{whole} records whole, {cut} cut, {lines} lines")
    }
}

/// The index of the kind, the numbers of the machine and of the line, and what happened.
fn read(line: &str) -> Option<(usize, u32, u32, &str)> {
    KINDS.iter().enumerate().find_map(|(index, kind)| {
        let mark = format!("{}: {} ", kind.module, kind.machine);
        let (_, rest) = line.split_once(&mark)?;
        let (machine, rest) = rest.split_once(' ')?;
        let machine = u32::from_str_radix(machine, 16).ok()?;
        let (number, entry) = rest.split_once(' ')?;
        Some((index, machine, number.parse().ok()?, entry))
    })
}

/// Replays all records of a log that is to hold each from its beginning to its end.
pub fn judge(log: &str) -> Verdict {
    let mut records: BTreeMap<(usize, u32), Lines<'_>> = BTreeMap::new();
    let mut verdict = Verdict::default();
    for (kind, machine, number, entry) in log.lines().filter_map(read) {
        let lines = records.entry((kind, machine)).or_default();
        if lines.insert(number, entry).is_some() {
            let wrong = format!("{machine:08x}, line {number}: there are two");
            verdict.wrong.push(wrong);
        }
    }
    for ((kind, number), lines) in records {
        let Some(kind) = KINDS.get(kind) else {
            continue;
        };
        if let Err(why) = (kind.judge)(&lines, &mut verdict) {
            let (module, machine) = (kind.module, kind.machine);
            let wrong = format!("{module}: {machine} {number:08x}, {why}");
            verdict.wrong.push(wrong);
        }
    }
    verdict
}

fn judge_record<R: Rules>(lines: &Lines<'_>, verdict: &mut Verdict) -> Result<(), String> {
    let mut replay = Replay::<R>::default();
    for (expected, (number, text)) in (0..).zip(lines) {
        if expected != *number {
            verdict.cut += 1;
            return Ok(());
        }
        verdict.lines += 1;
        replay
            .take(text)
            .map_err(|why| format!("line {number} '{text}': {why}"))?;
    }
    replay.end().map_err(|why| format!("at its end: {why}"))?;
    verdict.whole += 1;
    Ok(())
}
