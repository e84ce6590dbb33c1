// SPDX-License-Identifier: GPL-2.0

//! Shows the result of a scan: a table for people, JSON for programs.

use std::fmt::Write;

use chunk4k::CHUNK_LEN;
use serde::Serialize;

use crate::scan::{
    Bad,
    Found, //
};

/// A bad chunk, as JSON has it.
#[derive(Serialize)]
struct BadRow {
    chunk: u64,
    offset: u64,
    defect: &'static str,
    reason: String,
}

/// The result of a scan, as JSON has it.
#[derive(Serialize)]
struct Report<'a> {
    path: &'a str,
    clean: bool,
    chunks: u64,
    good: u64,
    blank: u64,
    bad: u64,
    rest_bytes: usize,
    listed: Vec<BadRow>,
}

const fn offset_of(bad: &Bad) -> u64 {
    bad.index.saturating_mul(CHUNK_LEN as u64)
}

/// Returns one object, in one line.
///
/// # Errors
///
/// Returns the error of the serializer, which has none for these types.
pub fn json(path: &str, found: &Found) -> serde_json::Result<String> {
    let row = |bad: &Bad| BadRow {
        chunk: bad.index,
        offset: offset_of(bad),
        defect: bad.defect.name(),
        reason: bad.defect.to_string(),
    };
    serde_json::to_string(&Report {
        path,
        clean: found.is_clean(),
        chunks: found.chunks(),
        good: found.good,
        blank: found.blank,
        bad: found.bad,
        rest_bytes: found.rest_bytes,
        listed: found.listed.iter().map(row).collect(),
    })
}

/// Returns a row for each bad chunk, and a last line that counts.
pub fn table(path: &str, found: &Found) -> String {
    let mut text = String::new();
    if !found.listed.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:>12}  {:>16}  {:10}  WHY",
            "CHUNK", "OFFSET", "DEFECT"
        );
    }
    for bad in &found.listed {
        let (index, offset, defect) = (bad.index, offset_of(bad), bad.defect);
        let _ = writeln!(
            text,
            "{index:>12}  {offset:>16}  {:10}  {defect}",
            defect.name()
        );
    }
    let unlisted = found.bad.saturating_sub(found.listed.len() as u64);
    if unlisted != 0 {
        let _ = writeln!(text, "... and {unlisted} more");
    }
    if found.rest_bytes != 0 {
        let _ = writeln!(
            text,
            "{} bytes behind the last chunk: cut off",
            found.rest_bytes
        );
    }
    let _ = writeln!(
        text,
        "{path}: {} chunks: {} good, {} never written, {} bad",
        found.chunks(),
        found.good,
        found.blank,
        found.bad
    );
    text
}
