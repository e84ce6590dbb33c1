// SPDX-License-Identifier: GPL-2.0

//! The commands.

mod assemble;
mod check;
mod dump;
mod probe;
mod status;

use std::{
    io::Write,
    process::ExitCode, //
};

use anyhow::Result;
use clap::{
    Parser,
    Subcommand, //
};

use crate::check::Verdict;

/// Arrays of rnbd_ec: what is on their members, and those that are assembled.
///
/// Exit status: 0 all is well, 1 something is on fewer members than it should be, 4 something is
/// lost or cannot be used, 8 wrong usage or refused.
#[derive(Debug, Parser)]
#[command(name = "rnbd-ec", version)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the superblocks of devices
    Dump(dump::Args),
    /// Checks an array that is not assembled: reads all that is live, and writes nothing
    Check(check::Args),
    /// Assembles an array of its members, in whatever order they are
    Assemble(assemble::Args),
    /// Shows whose member a device is, as udev imports it
    Probe(probe::Args),
    /// Shows the arrays that are assembled
    Status(status::Args),
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// All is well.
    Clean,
    /// Data are on fewer members than they should be.
    Degraded,
    /// Data are lost, or a device cannot be used.
    Damaged,
    /// Nothing was done.
    Refused,
}

impl Status {
    /// Returns the exit status.
    pub const fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Degraded => 1,
            Self::Damaged => 4,
            Self::Refused => 8,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

impl From<Verdict> for Status {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Clean => Self::Clean,
            Verdict::Degraded => Self::Degraded,
            Verdict::Damaged => Self::Damaged,
        }
    }
}

/// Runs a command.
///
/// # Errors
///
/// Returns why it was not done.
pub fn run(line: &CommandLine, out: &mut impl Write) -> Result<Status> {
    match &line.command {
        Command::Dump(args) => dump::dump(args, out),
        Command::Check(args) => check::check(args, out),
        Command::Assemble(args) => assemble::assemble(args, out),
        Command::Probe(args) => probe::probe(args, out),
        Command::Status(args) => status::status(args, out),
    }
}
