// SPDX-License-Identifier: GPL-2.0

//! `gga_halfblock`: see the library.

use std::{
    io,
    process::ExitCode, //
};

use clap::Parser;
use gga_halfblock::commands::{
    self,
    CommandLine, //
};

fn main() -> ExitCode {
    match commands::run(&CommandLine::parse(), &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("gga_halfblock: {why:#}");
            ExitCode::from(2)
        }
    }
}
