// SPDX-License-Identifier: GPL-2.0

//! `chunk4kfsck`: see the library.

use std::{
    fs::File,
    io::{
        self,
        IsTerminal,
        Seek,
        SeekFrom,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
    time::{
        Duration,
        Instant, //
    },
};

use chunk4k::CHUNK_LEN;
use chunk4kfsck::{
    rules::{
        Layout,
        Rules, //
    },
    scan::scan,
    show, //
};
use clap::{
    error::ErrorKind,
    Parser,
    ValueEnum, //
};
use rustix::fs::{
    fadvise,
    Advice, //
};

/// The exit codes of fsck(8).
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;
const USAGE_ERROR: u8 = 16;

/// Progress is told if it takes longer, and then as often.
const PATIENCE: Duration = Duration::from_secs(2);

/// Checks a file or a device of 4 KiB chunks with checksums: 4048 bytes of data, the chunk's
/// number, 36 reserved bytes, CRC-32. Nothing is written.
///
/// Exit status: 0 no chunk is bad, 4 some are, 8 the medium cannot be read, 16 wrong usage.
#[derive(Parser)]
#[command(name = "chunk4kfsck", version)]
struct Args {
    /// The file or device
    path: PathBuf,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Layout of the 36 bytes behind the chunk's number
    #[arg(long, value_enum, default_value_t = LayoutName::Strict)]
    layout: LayoutName,
    /// The number of the first chunk
    #[arg(long, default_value_t = 0)]
    first_id: u64,
    /// Chunks that are all zero are bad, and not just never written
    #[arg(long)]
    all_written: bool,
    /// Reserved bytes that are not 0 are bad (strict)
    #[arg(long)]
    reserved_zero: bool,
    /// The object to which all chunks must belong, in hexadecimal (extended)
    #[arg(long, value_parser = hexadecimal)]
    object: Option<u128>,
    /// The least generation that a chunk may have (extended)
    #[arg(long, default_value_t = 0)]
    generation_min: u64,
    /// Number of bad chunks that are listed; all are counted
    #[arg(long, default_value_t = 100)]
    list: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A row for each bad chunk
    Table,
    /// One object
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutName {
    /// 36 reserved bytes
    Strict,
    /// Object, generation, length, flags
    Extended,
}

fn hexadecimal(text: &str) -> Result<u128, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u128::from_str_radix(digits, 16).map_err(|why| why.to_string())
}

impl Args {
    fn rules(&self) -> Result<Rules, &'static str> {
        let is_extended = self.layout == LayoutName::Extended;
        if is_extended && self.reserved_zero {
            return Err("--reserved-zero is for --layout strict");
        }
        if !is_extended && (self.object.is_some() || self.generation_min != 0) {
            return Err("--object and --generation-min are for --layout extended");
        }
        let layout = match self.layout {
            LayoutName::Strict => Layout::Strict {
                reserved_zero: self.reserved_zero,
            },
            LayoutName::Extended => Layout::Extended {
                object: self.object,
                generation_min: self.generation_min,
            },
        };
        Ok(Rules {
            layout,
            first_id: self.first_id,
            all_written: self.all_written,
        })
    }
}

/// Tells how far it is, to a terminal, if it takes long.
struct Progress {
    chunks: u64,
    due: Instant,
    is_told: bool,
}

impl Progress {
    fn new(chunks: u64) -> Self {
        Self {
            chunks,
            due: Instant::now() + PATIENCE,
            is_told: false,
        }
    }

    fn tell(&mut self, done: u64) {
        if Instant::now() < self.due || !io::stderr().is_terminal() {
            return;
        }
        self.due = Instant::now() + PATIENCE;
        self.is_told = true;
        let percent = done.saturating_mul(100).checked_div(self.chunks);
        eprint!(
            "\r{done} of {} chunks, {} % ",
            self.chunks,
            percent.unwrap_or(100)
        );
    }

    fn end(&self) {
        if self.is_told {
            eprintln!();
        }
    }
}

/// Returns whether the medium is clean.
fn check(args: &Args, rules: &Rules) -> io::Result<bool> {
    let mut medium = File::open(&args.path)?;
    // Of a device as well, whose metadata has no length.
    let len_bytes = medium.seek(SeekFrom::End(0))?;
    medium.rewind()?;
    // What was read of a device earlier may be older than what is on it.
    fadvise(&medium, 0, None, Advice::DontNeed)?;
    let mut progress = Progress::new(len_bytes / CHUNK_LEN as u64);
    let found = scan(medium, rules, args.list, |done| progress.tell(done))?;
    progress.end();
    let path = args.path.display().to_string();
    let text = match args.output {
        Output::Table => show::table(&path, &found),
        Output::Json => show::json(&path, &found)? + "\n",
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(found.is_clean())
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors.
            let is_asked = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            let _ = error.print();
            return ExitCode::from(if is_asked { 0 } else { USAGE_ERROR });
        }
    };
    let rules = match args.rules() {
        Ok(rules) => rules,
        Err(why) => {
            eprintln!("chunk4kfsck: {why}");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    match check(&args, &rules) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(ERRORS_LEFT),
        Err(error) => {
            eprintln!("chunk4kfsck: {}: {error}", args.path.display());
            ExitCode::from(OPERATIONAL_ERROR)
        }
    }
}
