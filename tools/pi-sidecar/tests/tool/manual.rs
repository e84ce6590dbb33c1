// SPDX-License-Identifier: GPL-2.0

//! The manual page and the program have the same commands and options.

use std::collections::BTreeSet;

use clap::CommandFactory;
use pi_sidecar::commands::CommandLine;

const MANUAL: &str = include_str!("../../../../Documentation/pi-sidecar.8");

/// Returns the headings of the page's entries, without the names of arguments.
fn entries() -> BTreeSet<String> {
    let lines: Vec<&str> = MANUAL.lines().collect();
    let headings = lines.windows(2).filter_map(|pair| match pair {
        [".TP", heading] => heading.split(' ').nth(1),
        _ => None,
    });
    headings.map(|name| name.replace('\\', "")).collect()
}

/// Returns the commands and options that the program takes, but for those that clap adds.
fn taken() -> BTreeSet<String> {
    let line = CommandLine::command();
    let mut names = BTreeSet::new();
    for command in line.get_subcommands() {
        names.insert(command.get_name().to_owned());
        let options = command
            .get_arguments()
            .filter_map(|argument| argument.get_long());
        names.extend(options.map(|name| format!("--{name}")));
    }
    names
}

#[test]
fn every_command_and_option_has_an_entry() {
    assert_eq!(entries(), taken());
}
