// SPDX-License-Identifier: GPL-2.0

//! `rioc top`.

use std::{
    io::{
        self,
        IsTerminal,
        Write, //
    },
    path::PathBuf,
    thread,
    time::{
        Duration,
        Instant, //
    },
};

use anyhow::{
    bail,
    Result, //
};

use crate::{
    show::{
        print,
        Output, //
    },
    top::Snapshot,
};

/// Goes to the first line of a terminal, and clears what is behind.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Sessions and stores, if not all
    names: Vec<String>,
    /// Shows what was done since they are there, and ends
    #[arg(short = '1', long)]
    once: bool,
    /// Seconds from one look to the next
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Folder where sysfs is mounted
    #[arg(long, default_value = "/sys")]
    sysfs: PathBuf,
}

/// Shows sessions and stores, again and again.
///
/// # Errors
///
/// Returns that there are none, or that nothing can be printed.
pub(super) fn top(args: &Args, output: Output) -> Result<()> {
    let take = || {
        let snapshot = Snapshot::take(&args.sysfs.join("class"), &args.names);
        if snapshot.is_empty() {
            match args.names.is_empty() {
                true => bail!(
                    "there is no session and no store: see rioc-client/ctl/connect and \
                     rioc-server/ctl/add_store in /sys/class"
                ),
                false => bail!("there is no session and no store {}", args.names.join(", ")),
            }
        }
        Ok((snapshot, Instant::now()))
    };
    let (mut before, mut then) = take()?;
    if args.once || output == Output::Json {
        return print(output, &before, before.tables(None).trim_end());
    }
    let mut out = io::stdout();
    let clear = if out.is_terminal() { CLEAR } else { "" };
    loop {
        thread::sleep(Duration::from_secs(args.interval));
        let (now, at) = take()?;
        let tables = now.tables(Some((&before, at.saturating_duration_since(then))));
        // Who has seen enough closes the pipe.
        if writeln!(out, "{clear}{tables}")
            .and_then(|()| out.flush())
            .is_err()
        {
            return Ok(());
        }
        (before, then) = (now, at);
    }
}
