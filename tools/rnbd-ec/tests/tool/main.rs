// SPDX-License-Identifier: GPL-2.0

//! The program on arrays in files: what is there, damaged, found and told.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod assembling;
mod checking;
mod damage;
mod dumping;
mod image;
mod manual;
#[path = "../../../pi-sidecar/tests/tool/manual_page.rs"]
mod manual_page;
mod statuses;
mod unreadable;

use std::path::PathBuf;

use clap::Parser;
use rnbd_ec_tool::commands::{
    self,
    CommandLine, //
};
use serde_json::Value;

/// Runs the program; returns its exit status, and what it says.
pub(crate) fn run(words: &[&str], paths: &[&PathBuf]) -> (u8, String) {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    let line = ["rnbd-ec"]
        .into_iter()
        .chain(words.iter().copied())
        .chain(paths);
    let mut out = Vec::new();
    let line = match CommandLine::try_parse_from(line) {
        Ok(line) => line,
        Err(error) => return (8, error.to_string()),
    };
    match commands::run(&line, &mut out) {
        Ok(status) => (status.code(), String::from_utf8(out).unwrap()),
        Err(why) => (8, format!("{why:#}")),
    }
}

/// Runs the program, which ends with this status and says these words; returns all that it says.
pub(crate) fn says(words: &[&str], paths: &[&PathBuf], (status, what): (u8, &[&str])) -> String {
    let (found, lines) = run(words, paths);
    assert_eq!(found, status, "{words:?}: {lines}");
    for what in what {
        assert!(lines.contains(what), "'{what}' is not in: {lines}");
    }
    lines
}

/// Runs the program with `-o json`, which ends with this status; returns what it says.
pub(crate) fn json(words: &[&str], paths: &[&PathBuf], status: u8) -> Value {
    let words = [words, &["-o", "json"]].concat();
    let (found, lines) = run(&words, paths);
    assert_eq!(found, status, "{words:?}: {lines}");
    assert_eq!(lines.lines().count(), 1, "{lines}");
    serde_json::from_str(&lines).unwrap()
}
