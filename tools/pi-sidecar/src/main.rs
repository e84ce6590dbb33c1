// SPDX-License-Identifier: GPL-2.0

//! `pi-sidecar`: see the library.

use std::{
    io,
    process::ExitCode, //
};

use clap::Parser;
use pi_sidecar::commands::{
    self,
    CommandLine, //
};

fn main() -> ExitCode {
    match commands::run(&CommandLine::parse(), &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("pi-sidecar: {why:#}");
            ExitCode::from(2)
        }
    }
}
