// SPDX-License-Identifier: GPL-2.0

//! The records of paths in a kernel log.

use std::{
    collections::BTreeMap,
    fmt, //
};

use crate::path::Path;

/// What is before the number of a path.
const MARK: &str = "rtrs_client: path ";

/// What the replay of a log has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Paths that were replayed from their beginning to the end of the log.
    pub whole: usize,
    /// Paths of which lines are missing: what is before the first missing line was replayed.
    pub cut: usize,
    /// The lines that were replayed.
    pub lines: usize,
    /// Where record and model disagree, in words.
    pub wrong: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for wrong in &self.wrong {
            writeln!(f, "{wrong}")?;
        }
        let (whole, cut, lines) = (self.whole, self.cut, self.lines);
        write!(f, "{whole} paths whole, {cut} cut, {lines} lines")
    }
}

/// The number of the path, that of the line, and what happened.
fn read(line: &str) -> Option<(u32, u32, &str)> {
    let (_, rest) = line.split_once(MARK)?;
    let (path, rest) = rest.split_once(' ')?;
    let path = u32::from_str_radix(path, 16).ok()?;
    let (number, entry) = rest.split_once(' ')?;
    Some((path, number.parse().ok()?, entry))
}

/// Replays all paths of a log that is to hold each path from its beginning to its end.
pub fn judge(log: &str) -> Verdict {
    let mut paths: BTreeMap<u32, BTreeMap<u32, &str>> = BTreeMap::new();
    let mut verdict = Verdict::default();
    for (path, number, entry) in log.lines().filter_map(read) {
        if paths
            .entry(path)
            .or_default()
            .insert(number, entry)
            .is_some()
        {
            let wrong = format!("path {path:08x}, line {number}: there are two");
            verdict.wrong.push(wrong);
        }
    }
    for (number, entries) in paths {
        judge_path(number, &entries, &mut verdict);
    }
    verdict
}

fn judge_path(name: u32, entries: &BTreeMap<u32, &str>, verdict: &mut Verdict) {
    let mut path = Path::default();
    for (expected, (number, text)) in (0..).zip(entries) {
        if expected != *number {
            verdict.cut += 1;
            return;
        }
        verdict.lines += 1;
        if let Err(why) = path.take(text) {
            let wrong = format!("path {name:08x}, line {number} '{text}': {why}");
            return verdict.wrong.push(wrong);
        }
    }
    match path.end() {
        Ok(()) => verdict.whole += 1,
        Err(why) => verdict
            .wrong
            .push(format!("path {name:08x}, at its end: {why}")),
    }
}
