// SPDX-License-Identifier: GPL-2.0

//! The commands.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use crate::control::Refusal;
use crate::initiator::{self, Plan, Session, Strategy};
use crate::io_message::{IoMessage, Kind};
use crate::matrix::{Half, Matrix, MatrixType};
use crate::members::Medium;
use crate::sbc::Geometry;
use crate::service::{Service, Settings};
use crate::worker::Recovery;
use crate::{stored, survey};

/// Bad blocks that `stats` names; the others are counted.
const NAMED_MAX: usize = 20;

/// Half blocks, compressed and with parity, on three files or block devices in place. A crash
/// within a write leaves a block whose parity is wrong: all reads are well until a half is lost.
#[derive(Debug, Parser)]
#[command(name = "gga_halfblock", version)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes three .sbc files of a file
    Generate(GenerateArgs),
    /// Reads blocks; status 1: one of them cannot be read
    Read(ReadArgs),
    /// Writes blocks; status 1: one of them could not be written, and the rest was not
    Write(WriteArgs),
    /// Connects, queries, initialises, starts, tests, stops, shuts down, shows statistics; status
    /// 1: the test has failed
    Run(RunArgs),
    /// Judges all stored blocks and their parity; status 1: some are bad
    Stats(StatsArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for each value
    Table,
    /// One object
    Json,
}

#[derive(Debug, Args)]
struct Storage {
    /// Block device or file with the first halves
    #[arg(long)]
    data_1: PathBuf,
    /// Block device or file with the second halves
    #[arg(long)]
    data_2: PathBuf,
    /// Block device or file with the parity
    #[arg(long)]
    data_p: PathBuf,
    /// Length of a block, of which a member has half; an .sbc file says it itself
    #[arg(long, default_value_t = 4096, value_parser = block_bytes)]
    block_size: u32,
    /// Coefficients with which parity is made
    #[arg(long, value_enum, default_value_t = MatrixType::Vandermonde)]
    matrix_type: MatrixType,
}

#[derive(Debug, Args)]
struct GenerateArgs {
    #[command(flatten)]
    storage: Storage,
    /// The content; it is padded with zeroes to whole blocks
    #[arg(long)]
    original_input_data: PathBuf,
    /// Overwrites files that are there
    #[arg(long)]
    force: bool,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Args)]
struct ReadArgs {
    #[command(flatten)]
    storage: Storage,
    /// The first block
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The number of blocks; without it, all from the first on
    #[arg(long)]
    blocks: Option<u64>,
    /// The member that is lost: it is not opened, its halves are rebuilt
    #[arg(long, value_enum)]
    lost: Option<Half>,
    /// File that gets the data; without it, they go to the standard output
    #[arg(long)]
    to: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct WriteArgs {
    #[command(flatten)]
    storage: Storage,
    /// The first block
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The data; they are padded with zeroes to whole blocks
    #[arg(long)]
    from: PathBuf,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    storage: Storage,
    /// The test; those that write overwrite what is stored
    #[arg(long, value_enum)]
    execution_strategy: Strategy,
    /// A processor to which a thread is bound; each one more is a thread more
    #[arg(long, value_parser = clap::value_parser!(u16).range(..1024))]
    cpu: Vec<u16>,
    /// Requests of a thread, of a throughput test
    #[arg(long, default_value_t = 10_000)]
    run_limit_operation_count: u64,
    /// Requests of a thread that have memory of their own
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..65_536))]
    transaction_count: u32,
    /// Blocks of a request
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..256))]
    blocks_per_io: u32,
    /// Each n-th block that a thread reads is rebuilt, alternately from each half; 0: none is
    #[arg(long, visible_alias = "recover-every-n", default_value_t = 0)]
    trigger_recovery_read_every_n: u32,
    /// File with the content that is stored, for read_only_data_validity_test
    #[arg(
        long,
        visible_alias = "plain",
        required_if_eq("execution_strategy", "read_only_data_validity_test")
    )]
    storage_plain_content: Option<PathBuf>,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Args)]
struct StatsArgs {
    #[command(flatten)]
    storage: Storage,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

fn block_bytes(text: &str) -> Result<u32> {
    let bytes = text.parse()?;
    ensure!(
        stored::is_block_length(bytes),
        "a multiple of {} up to {}",
        stored::BLOCK_MIN_BYTES,
        stored::BLOCK_MAX_BYTES
    );
    Ok(bytes)
}

impl Storage {
    /// Two members in one place would overwrite each other.
    fn check(&self) -> Result<()> {
        let place = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let [first, second, parity] = [&self.data_1, &self.data_2, &self.data_p].map(place);
        let is_distinct = first != second && first != parity && second != parity;
        ensure!(is_distinct, "two of the members are the same");
        Ok(())
    }

    fn open(&self, is_written: bool, lost: Option<Half>) -> Result<[(Medium, Geometry); 3]> {
        let open = |path: &Path| Medium::open(path, self.block_size / 2, is_written);
        self.check()?;
        let parity = open(&self.data_p)?;
        let member = |half, path| match lost {
            Some(lost) if lost == half => Ok((Medium::LOST, parity.1)),
            _ => open(path),
        };
        let first = member(Half::First, &self.data_1)?;
        let second = member(Half::Second, &self.data_2)?;
        Ok([first, second, parity])
    }

    fn service(&self, members: [(Medium, Geometry); 3], settings: Settings) -> Service<Medium> {
        let matrix = self.matrix_type;
        Service::new(members, &Settings { matrix, ..settings })
    }
}

/// Runs a command; returns whether all went well with the blocks.
///
/// # Errors
///
/// Returns why it could not be done.
pub fn run(line: &CommandLine, out: &mut impl Write) -> Result<bool> {
    match &line.command {
        Command::Generate(args) => generate(args, out),
        Command::Read(args) => read(args, out),
        Command::Write(args) => write(args),
        Command::Run(args) => test(args, out),
        Command::Stats(args) => stats(args, out),
    }
}

/// Prints what was found; a table has a line for each value.
fn show(found: &impl Serialize, output: Output, out: &mut impl Write) -> Result<()> {
    let value = serde_json::to_value(found)?;
    match output {
        Output::Json => writeln!(out, "{value}")?,
        Output::Table => rows("", &value, out)?,
    }
    Ok(())
}

fn rows(name: &str, value: &Value, out: &mut impl Write) -> io::Result<()> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(field, value)| {
            let dot = if name.is_empty() { "" } else { "." };
            rows(&format!("{name}{dot}{field}"), value, out)
        }),
        Value::Array(values) => (0..)
            .zip(values)
            .try_for_each(|(index, value): (u32, _)| rows(&format!("{name}.{index}"), value, out)),
        Value::Number(number) if number.is_f64() => {
            writeln!(out, "{name:<28} {:.3}", number.as_f64().unwrap_or_default())
        }
        Value::String(text) => writeln!(out, "{name:<28} {text}"),
        Value::Null => Ok(()),
        other => writeln!(out, "{name:<28} {other}"),
    }
}

fn content(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

#[derive(Serialize)]
struct Generated {
    block_bytes: u32,
    blocks: u32,
    compressed_bytes: usize,
}

fn generate(args: &GenerateArgs, out: &mut impl Write) -> Result<bool> {
    let storage = &args.storage;
    storage.check()?;
    let mut input = content(&args.original_input_data)?;
    let block = storage.block_size as usize;
    input.resize(input.len().next_multiple_of(block), 0);
    let geometry = Geometry {
        half_bytes: storage.block_size / 2,
        blocks: u32::try_from(input.len() / block).unwrap_or(u32::MAX),
    };
    let head = geometry.encode()?;
    let matrix = Matrix::new(storage.matrix_type);
    let [mut first, mut second, mut parity] = [head; 3].map(|head| head.to_vec());
    let mut area = vec![0; block + block / 2];
    let mut compressed_bytes = 0;
    for (number, data) in input.chunks_exact(block).enumerate() {
        let done = stored::encode(data, &mut area).with_context(|| format!("block {number}"));
        compressed_bytes += done?;
        let (halves, to) = area.split_at_mut(block);
        let (one, two) = halves.split_at(block / 2);
        matrix.create(one, two, to);
        first.extend(one);
        second.extend(two);
        parity.extend(to.iter());
    }
    // Nothing is written unless all blocks can be stored.
    let members = [
        (&storage.data_1, first),
        (&storage.data_2, second),
        (&storage.data_p, parity),
    ];
    for (path, bytes) in &members {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .create_new(!args.force);
        let written = options.open(path).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.with_context(|| path.display().to_string())?;
    }
    let found = Generated {
        block_bytes: storage.block_size,
        blocks: geometry.blocks,
        compressed_bytes,
    };
    show(&found, args.output, out)?;
    Ok(true)
}

/// A service for one thread, and one request at a time of one block.
fn settings(recovery: Recovery, is_written: bool) -> Settings {
    Settings {
        cores_max: 1,
        matrix: MatrixType::Vandermonde,
        recovery,
        is_written,
    }
}

/// Transfers blocks from `first` on, one after the other, as long as `next` has a block or takes
/// one; returns whether all could be transferred.
fn transfer(
    service: &mut Service<Medium>,
    kind: Kind,
    (first, blocks): (u64, Option<u64>),
    mut next: impl FnMut(&mut [u8]) -> Result<()>,
) -> Result<bool> {
    let mut session = Session::connect(service)?;
    let block = session.block_bytes;
    let there = session.total_bytes / u64::from(block);
    let end = blocks.map_or(Some(there), |blocks| first.checked_add(blocks));
    let Some(end) = end.filter(|&end| end <= there && first <= end) else {
        bail!("there are {there} blocks only");
    };
    session.start(1, 1)?;
    let (workers, path) = session.data_path();
    let worker = workers.first_mut().context("there is no worker")?;
    let mut data = vec![0; block as usize];
    for number in first..end {
        let message = IoMessage {
            kind,
            user_data: 0,
            result: 0,
            io_bytes: block,
            requester_offset: 0,
            storage_offset: number * u64::from(block),
        };
        if kind == Kind::Write {
            next(&mut data)?;
        }
        if initiator::request(worker, path, &message, &mut data).is_err() {
            break;
        }
        if kind == Kind::Read {
            next(&mut data)?;
        }
    }
    let done = session
        .end()
        .map_err(|Refusal { text, .. }| eprintln!("gga_halfblock: {text}"));
    Ok(done.is_ok())
}

fn read(args: &ReadArgs, out: &mut impl Write) -> Result<bool> {
    let members = args.storage.open(false, args.lost)?;
    let recovery = args.lost.map_or(Recovery::EveryNth(0), Recovery::Always);
    let mut service = args.storage.service(members, settings(recovery, false));
    let mut file = match &args.to {
        Some(path) => Some(File::create(path).with_context(|| path.display().to_string())?),
        None => None,
    };
    transfer(
        &mut service,
        Kind::Read,
        (args.first, args.blocks),
        |data| {
            match &mut file {
                Some(file) => file.write_all(data)?,
                None => out.write_all(data)?,
            }
            Ok(())
        },
    )
}

fn write(args: &WriteArgs) -> Result<bool> {
    let members = args.storage.open(true, None)?;
    let block = members[0].1.block_bytes() as usize;
    let mut input = content(&args.from)?;
    input.resize(input.len().next_multiple_of(block), 0);
    let range = (args.first, Some((input.len() / block) as u64));
    let mut service = args
        .storage
        .service(members, settings(Recovery::EveryNth(0), true));
    let mut rest = input.as_slice();
    transfer(&mut service, Kind::Write, range, |data| {
        Ok(rest.read_exact(data)?)
    })
}

fn test(args: &RunArgs, out: &mut impl Write) -> Result<bool> {
    let is_written = args.execution_strategy.writes();
    let members = args.storage.open(is_written, None)?;
    let plan = Plan {
        strategy: args.execution_strategy,
        operations: args.run_limit_operation_count,
        transactions: args.transaction_count,
        blocks_per_io: args.blocks_per_io,
        cpus: args.cpu.iter().copied().map(usize::from).collect(),
        plain: match &args.storage_plain_content {
            Some(path) => content(path)?,
            None => Vec::new(),
        },
    };
    let recovery = Recovery::EveryNth(args.trigger_recovery_read_every_n);
    let settings = Settings {
        cores_max: u32::try_from(plan.cpus.len().max(1))?,
        ..settings(recovery, is_written)
    };
    let mut service = args.storage.service(members, settings);
    let report = initiator::run(&mut service, &plan)?;
    show(&report, args.output, out)?;
    Ok(report.failure.is_none())
}

fn stats(args: &StatsArgs, out: &mut impl Write) -> Result<bool> {
    let members = args.storage.open(false, None)?;
    let [(first, geometry), (second, of_second), (parity, of_parity)] = &members;
    ensure!(
        geometry == of_second && geometry == of_parity,
        "the members differ: {geometry:?}, {of_second:?}, {of_parity:?}"
    );
    let matrix = Matrix::new(args.storage.matrix_type);
    let found = survey::survey([first, second, parity], geometry, &matrix, NAMED_MAX)?;
    show(&found, args.output, out)?;
    Ok(found.is_clean())
}
