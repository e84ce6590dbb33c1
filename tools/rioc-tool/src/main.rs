// SPDX-License-Identifier: GPL-2.0

//! `rioc`: see the library.

use std::process::ExitCode;

use clap::Parser;
use rioc_tool::commands::{
    self,
    CommandLine, //
};

fn main() -> ExitCode {
    match commands::run(&CommandLine::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(why) => {
            eprintln!("rioc: {why:#}");
            ExitCode::FAILURE
        }
    }
}
