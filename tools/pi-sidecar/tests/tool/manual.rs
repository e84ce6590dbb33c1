// SPDX-License-Identifier: GPL-2.0

//! The manual page and the program have the same commands and options.

use clap::CommandFactory;
use pi_sidecar::commands::CommandLine;

use crate::manual_page::{
    entries,
    taken, //
};

const MANUAL: &str = include_str!("../../../../Documentation/pi-sidecar.8");

#[test]
fn every_command_and_option_has_an_entry() {
    assert_eq!(entries(MANUAL), taken(&CommandLine::command()));
}
