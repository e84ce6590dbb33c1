// SPDX-License-Identifier: GPL-2.0

//! The commands.

use std::{
    fs::{
        self,
        File, //
    },
    io::{
        Read,
        Write, //
    },
    path::{
        Path,
        PathBuf, //
    },
};

use anyhow::{
    bail,
    Context,
    Result, //
};
use clap::{
    Args,
    Parser,
    Subcommand, //
};
use proto::sidecar::{
    replay::Outcome,
    superblock::{
        Refusal,
        Version, //
    },
    Block,
    BLOCK_BYTES, //
};

use crate::{
    checksum::Crc64Nvme,
    device::{
        Device,
        FileDevice, //
    },
    format,
    session::Session,
    volume::{
        Fault,
        OnDamage,
        Volume, //
    },
};

/// Blocks that are read or written together: 124 KiB, as an IO of rnbd at most.
const CHUNK_BLOCKS: usize = 31;
/// Bad blocks that a scrub names; the others are counted.
const NAMED_MAX: u64 = 20;

/// Protection information in a sidecar on a plain device or file.
#[derive(Debug, Parser)]
#[command(name = "pi-sidecar", version)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a sidecar. All data blocks read as zeroes then
    Format(FormatArgs),
    /// Shows what is on a device
    Info(DeviceArg),
    /// Replays the journal, and repairs with --repair what can be repaired
    Fsck(FsckArgs),
    /// Reads all data and checks them; status 1: some are bad
    Scrub(DeviceArg),
    /// Writes a file to the data blocks, with protection information
    Import(TransferArgs),
    /// Reads the data blocks to a file, and checks them
    Export(TransferArgs),
    /// Takes the space that a device has got since it was formatted. While a server uses it:
    /// `echo start > /sys/class/rnbd-server/ctl/devices/D/sidecar/grow`
    Grow(DeviceArg),
    /// Gives a device of version 1 version 2, with short records; older servers refuse it then
    Upgrade(DeviceArg),
}

#[derive(Debug, Args)]
struct DeviceArg {
    /// The block device or file
    device: PathBuf,
}

#[derive(Debug, Args)]
struct FormatArgs {
    /// The block device or file
    device: PathBuf,
    /// Formats a device that is not empty: what is on it is lost
    #[arg(long)]
    force: bool,
    /// The number of slots of the journal, each of 4 KiB, from 4 to 1024; default: 255, and 1023
    /// from 256 MiB on
    #[arg(long)]
    journal_slots: Option<u32>,
    /// The version: 1 for servers that do not know short records
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=2))]
    format_version: u32,
}

#[derive(Debug, Args)]
struct FsckArgs {
    /// The block device or file
    device: PathBuf,
    /// Takes the superblock from its copy, and goes on without records that are missing
    #[arg(long)]
    repair: bool,
}

#[derive(Debug, Args)]
struct TransferArgs {
    /// The block device or file with the sidecar
    device: PathBuf,
    /// The file with the data
    file: PathBuf,
    /// The first data block
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The number of data blocks; default: to the end of the data
    #[arg(long)]
    blocks: Option<u64>,
}

/// Runs a command; returns whether all blocks that it read were good.
///
/// # Errors
///
/// Returns why it could not be done.
pub fn run(line: &CommandLine, out: &mut impl Write) -> Result<bool> {
    match &line.command {
        Command::Format(args) => format_device(args, out),
        Command::Info(args) => info(&args.device, out),
        Command::Fsck(args) => fsck(args, out),
        Command::Scrub(args) => scrub(&args.device, out),
        Command::Import(args) => import(args, out),
        Command::Export(args) => export(args, out),
        Command::Grow(args) => grow(&args.device, out),
        Command::Upgrade(args) => upgrade(&args.device, out),
    }
}

fn open(path: &Path) -> Result<FileDevice> {
    FileDevice::open(path, true).with_context(|| path.display().to_string())
}

/// The kernel's random UUID.
fn new_uuid() -> Result<[u8; 16]> {
    let source = "/proc/sys/kernel/random/uuid";
    let text = fs::read_to_string(source).context(source)?;
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    bytes.try_into().ok().context("the kernel gave no UUID")
}

fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn format_device(args: &FormatArgs, out: &mut impl Write) -> Result<bool> {
    let mut device = open(&args.device)?;
    let kind = (
        new_uuid()?,
        Version::from_number(args.format_version).unwrap_or_default(),
    );
    let slots = args.journal_slots;
    let slots = slots.unwrap_or_else(|| format::slots_for(device.blocks()));
    let volume = format::format(&mut device, kind, slots, args.force, Crc64Nvme);
    let volume = volume.with_context(|| args.device.display().to_string())?;
    describe(&volume, out)?;
    Ok(true)
}

fn describe(volume: &Volume<Crc64Nvme>, out: &mut impl Write) -> Result<()> {
    let layout = volume.layout();
    writeln!(out, "uuid: {}", hex(&volume.superblock().uuid))?;
    writeln!(out, "version: {}", volume.superblock().version.number())?;
    writeln!(out, "format: crc64, 16 bytes for each 4096")?;
    writeln!(out, "data blocks: {}", layout.data_blocks())?;
    writeln!(out, "device blocks: {}", layout.device_blocks())?;
    writeln!(out, "journal slots: {}", layout.slots())?;
    for segment in layout.segments() {
        let (start, groups) = (segment.start, segment.groups);
        writeln!(out, "segment: {groups} groups from block {start} on")?;
    }
    Ok(())
}

fn info(path: &Path, out: &mut impl Write) -> Result<bool> {
    let mut device = FileDevice::open(path, false).with_context(|| path.display().to_string())?;
    let volume = Volume::load(&mut device, Crc64Nvme);
    describe(&volume.with_context(|| path.display().to_string())?, out)?;
    Ok(true)
}

fn report(outcome: &Outcome, out: &mut impl Write) -> Result<()> {
    let Outcome {
        newest,
        older,
        torn,
        unreadable,
        missing,
        slots,
        homes,
    } = outcome;
    writeln!(
        out,
        "journal: {newest} blocks have their last write, {older} an older one, {torn} are torn, \
         {unreadable} cannot be read and are lost; {missing} records are missing"
    )?;
    if (*slots, *homes) != (0, 0) {
        writeln!(
            out,
            "written anew as they cannot be read: {slots} blocks of the journal, {homes} of tuples"
        )?;
    }
    Ok(())
}

fn fsck(args: &FsckArgs, out: &mut impl Write) -> Result<bool> {
    let path = || args.device.display().to_string();
    let mut device = open(&args.device)?;
    let volume = match Volume::load(&mut device, Crc64Nvme) {
        Err(Fault::Io(_) | Fault::Refused(Refusal::Checksum | Refusal::NotFormatted))
            if args.repair =>
        {
            let volume = format::restore(&mut device, Crc64Nvme).with_context(path)?;
            let copy = volume.layout().copy();
            writeln!(
                out,
                "superblock: written anew from its copy in block {copy}"
            )?;
            volume
        }
        loaded => loaded.with_context(path)?,
    };
    let on_damage = if args.repair {
        OnDamage::Accept
    } else {
        OnDamage::Refuse
    };
    let (outcome, _) = volume.replay(&mut device, on_damage).with_context(path)?;
    report(&outcome, out)?;
    let copy = volume.layout().copy();
    let is_copied = Volume::load_from(&mut device, copy, Crc64Nvme)
        .is_ok_and(|copied| copied.superblock() == volume.superblock());
    if !is_copied {
        writeln!(out, "copy of the superblock: damaged, written anew")?;
        volume.save_to(&mut device, copy).with_context(path)?;
    }
    Ok(outcome.is_whole())
}

fn scrub(path: &Path, out: &mut impl Write) -> Result<bool> {
    let name = || path.display().to_string();
    let mut device = open(path)?;
    let volume = Volume::load(&mut device, Crc64Nvme).with_context(name)?;
    let (outcome, _) = volume
        .replay(&mut device, OnDamage::Refuse)
        .with_context(name)?;
    report(&outcome, out)?;
    let mut named = Vec::new();
    let found = volume.scrub(&mut device, |block, verdict| {
        if (named.len() as u64) < NAMED_MAX {
            named.push(match verdict {
                Some(verdict) => format!("data block {block}: {verdict}"),
                None => format!("data block {block}: it cannot be read"),
            });
        }
    });
    let found = found.with_context(name)?.found;
    for line in &named {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "{} good, {} never written, {} bad ({} lost, {} do not fit, {} foreign, {} unreadable)",
        found.good,
        found.unwritten,
        found.bad(),
        found.lost,
        found.wrong_guard,
        found.wrong_reference,
        found.unreadable
    )?;
    Ok(found.bad() == 0)
}

fn session(path: &Path, out: &mut impl Write) -> Result<Session<FileDevice, Crc64Nvme>> {
    let opened = Session::open(open(path)?, Crc64Nvme);
    let (session, outcome) = opened.with_context(|| path.display().to_string())?;
    if outcome != Outcome::default() {
        report(&outcome, out)?;
    }
    Ok(session)
}

/// Reads up to a chunk of blocks from a file, the last one filled up with zeroes.
fn read_blocks(file: &mut File, blocks_max: usize) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    while blocks.len() < blocks_max {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        file.take(BLOCK_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        bytes.resize(BLOCK_BYTES, 0);
        let block: Option<Block> = bytes.try_into().ok();
        blocks.extend(block);
    }
    Ok(blocks)
}

fn import(args: &TransferArgs, out: &mut impl Write) -> Result<bool> {
    let mut file = File::open(&args.file).with_context(|| args.file.display().to_string())?;
    let mut session = session(&args.device, out)?;
    let (mut first, mut left) = (args.first, args.blocks.unwrap_or(u64::MAX));
    while left != 0 {
        let blocks_max = usize::try_from(left).unwrap_or(usize::MAX);
        let mut blocks = read_blocks(&mut file, blocks_max.min(CHUNK_BLOCKS))?;
        if blocks.is_empty() {
            break;
        }
        let written = session.write(first, &mut blocks);
        written.with_context(|| format!("data block {first}"))?;
        let count = blocks.len() as u64;
        (first, left) = (first.saturating_add(count), left.saturating_sub(count));
    }
    session.flush()?;
    session.close()?;
    writeln!(
        out,
        "{} data blocks written",
        first.saturating_sub(args.first)
    )?;
    Ok(true)
}

fn export(args: &TransferArgs, out: &mut impl Write) -> Result<bool> {
    let mut session = session(&args.device, out)?;
    let mut file = File::create(&args.file).with_context(|| args.file.display().to_string())?;
    let end = match args.blocks {
        Some(blocks) => args.first.saturating_add(blocks),
        None => session.data_blocks(),
    };
    if end > session.data_blocks() {
        bail!("the device has {} data blocks", session.data_blocks());
    }
    let mut first = args.first;
    while first < end {
        let count = end.saturating_sub(first).min(CHUNK_BLOCKS as u64);
        let mut blocks = vec![[0; BLOCK_BYTES]; usize::try_from(count)?];
        session.read(first, &mut blocks)?;
        for block in &blocks {
            file.write_all(block)?;
        }
        first = first.saturating_add(count);
    }
    session.close()?;
    writeln!(out, "{} data blocks read", end.saturating_sub(args.first))?;
    Ok(true)
}

fn grow(path: &Path, out: &mut impl Write) -> Result<bool> {
    let name = || path.display().to_string();
    let mut device = open(path)?;
    let volume = Volume::load(&mut device, Crc64Nvme).with_context(name)?;
    let grown = format::grow(&mut device, &volume, Crc64Nvme).with_context(name)?;
    writeln!(
        out,
        "{} of {} blocks used before, {} now",
        volume.layout().device_blocks(),
        device.blocks(),
        grown.layout().device_blocks()
    )?;
    describe(&grown, out)?;
    Ok(true)
}

fn upgrade(path: &Path, out: &mut impl Write) -> Result<bool> {
    let name = || path.display().to_string();
    let mut device = open(path)?;
    let volume = Volume::load(&mut device, Crc64Nvme).with_context(name)?;
    let upgraded = format::upgrade(&mut device, &volume, Crc64Nvme).with_context(name)?;
    describe(&upgraded, out)?;
    Ok(true)
}
