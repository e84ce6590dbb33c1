// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec`: see the library.

use std::{
    io,
    process::ExitCode, //
};

use clap::{
    error::ErrorKind,
    Parser, //
};
use rnbd_ec_tool::commands::{
    self,
    CommandLine,
    Status, //
};

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            // Help and version are no errors.
            let is_asked = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            let _ = error.print();
            let status = if is_asked {
                Status::Clean
            } else {
                Status::Refused
            };
            return status.into();
        }
    };
    match commands::run(&line, &mut io::stdout().lock()) {
        Ok(status) => status.into(),
        Err(why) => {
            eprintln!("rnbd-ec: {why:#}");
            Status::Refused.into()
        }
    }
}
