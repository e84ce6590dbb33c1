// SPDX-License-Identifier: GPL-2.0

//! `rioc lease`.

use std::{
    ffi::OsString,
    process, //
};

use anyhow::{
    Context,
    Result, //
};
use rioc_device::wire;

use super::{
    Attached,
    CommandLine,
    Named, //
};
use crate::object::number;

/// The variable of the environment that tells commands their lease.
pub(super) const VARIABLE: &str = "RIOC_LEASE";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    named: Named,
    /// Keep other clients from reading, too, to write; else they are kept from writing only
    #[arg(long)]
    writer: bool,
    /// The first byte
    #[arg(long, value_parser = number, default_value = "0")]
    offset: u64,
    /// The number of bytes, if not all behind the first
    #[arg(long, value_parser = number, default_value = "0")]
    length: u64,
    /// The command, with its arguments; the lease ends with it
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn lease(line: &CommandLine, args: &Args) -> Result<u8> {
    let attached = Attached::new(line, &args.named.session)?;
    let taken = attached.call(wire::LEASE, args.named.object, |asked| {
        asked.flags = if args.writer {
            wire::FLAG_WRITER.into()
        } else {
            0
        };
        (asked.offset, asked.length) = (args.offset, args.length);
    })?;
    let (program, arguments) = args.command.split_first().context("no command")?;
    let status = process::Command::new(program)
        .args(arguments)
        .env(VARIABLE, taken.lease.to_string())
        .status()
        .with_context(|| program.to_string_lossy().into_owned())?;
    // Now, and not when the file is closed: what comes next may need it. If it has ended before,
    // others may have come between.
    attached.call(wire::RELEASE, args.named.object, |asked| {
        (asked.object, asked.lease) = ([0; 2], taken.lease);
    })?;
    // One that a signal has ended has no code.
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}
