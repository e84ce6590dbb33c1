// SPDX-License-Identifier: GPL-2.0

//! A manual page beside what its program takes, for the programs of `tools/`.

use std::collections::BTreeSet;

/// Returns the headings of the page's entries, without the names of arguments.
pub(crate) fn entries(page: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = page.lines().collect();
    let headings = lines.windows(2).filter_map(|pair| match pair {
        [".TP", heading] => heading.split(' ').nth(1),
        _ => None,
    });
    headings.map(|name| name.replace('\\', "")).collect()
}

/// Returns the commands and options that the program takes, but for those that clap adds.
pub(crate) fn taken(line: &clap::Command) -> BTreeSet<String> {
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
