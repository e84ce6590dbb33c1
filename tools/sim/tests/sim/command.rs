// SPDX-License-Identifier: GPL-2.0

//! The program: seeds that are new in each run, and the command that repeats one that fails.

use std::process::Command;

/// Runs the program; returns its lines.
fn lines_of(arguments: &[&str]) -> Vec<String> {
    let run = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn fresh_seeds_are_new_each_time_and_run() {
    let run = || lines_of(&["--seeds", "1", "--fresh", "2"]);
    let (one, other) = (run(), run());
    assert!(one[0].starts_with("# fresh: --first "), "{one:?}");
    assert_ne!(one[0], other[0]);
    assert_eq!(one.last().unwrap(), "3 passed, 0 failed");
}

#[test]
fn the_printed_command_repeats_a_fresh_seed_that_failed() {
    let broken = ["--mutation", "NoFailOver", "--seeds", "0", "--fresh", "50"];
    let lines = lines_of(&broken);
    let failed = lines
        .iter()
        .position(|l| l.starts_with("not ok seed "))
        .unwrap();
    let again = lines[failed + 1].split_once("-- ").unwrap().1;
    let arguments: Vec<&str> = again.split(' ').collect();
    let repeated = lines_of(&arguments);
    assert!(arguments.contains(&"--trace") && repeated.len() > 50);
    assert!(repeated.contains(&lines[failed]), "{again}");
}
