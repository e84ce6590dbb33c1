// SPDX-License-Identifier: GPL-2.0

//! The commands.

mod fsck;
mod probe;
mod transfer;

use std::{
    fmt,
    fs,
    io::Write,
    path::{
        Path,
        PathBuf, //
    },
    thread,
    time::Duration, //
};

use anyhow::{
    anyhow,
    Context,
    Result, //
};
use clap::{
    Args,
    Parser,
    Subcommand, //
};
use proto::sidecar::{
    claim::mark::{
        Found,
        Holder,
        Other, //
    },
    group::Blank,
    layout::Layout,
    replay::Outcome,
    superblock::Version, //
};

use crate::{
    checksum::Crc64Nvme,
    claim::{
        self,
        InUse, //
    },
    device::{
        Device,
        FileDevice, //
    },
    format::{
        self,
        Refused,
        Zeroing, //
    },
    volume::{
        OnDamage,
        Volume, //
    },
};

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
    /// Shows the sidecar of a device as properties of udev
    Probe(DeviceArg),
    /// Replays the journal, and repairs with --repair what can be repaired
    Fsck(fsck::Args),
    /// Reads all data and checks them; status 1: some are bad
    Scrub(DeviceArg),
    /// Writes a file to the data blocks, with protection information
    Import(transfer::Args),
    /// Reads the data blocks to a file, and checks them
    Export(transfer::Args),
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
    /// Makes zeroes of all data, also where that means to write them: blocks that were never
    /// written are checked as others are then. Done anyway where the device can without writing
    #[arg(long)]
    zero: bool,
    /// Leaves data as they are, and the space of a preallocated file, of which zeroes are holes:
    /// blocks that were never written are not checked then
    #[arg(long, conflicts_with = "zero")]
    no_zero: bool,
    /// The number of slots of the journal, each of 4 KiB, from 4 to 1024; default: 255, and 1023
    /// from 256 MiB on
    #[arg(long)]
    journal_slots: Option<u32>,
    /// The version: 1 for servers that do not know short records
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=2))]
    format_version: u32,
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
        Command::Probe(args) => probe::probe(&args.device, out),
        Command::Fsck(args) => fsck::fsck(args, out),
        Command::Scrub(args) => scrub(&args.device, out),
        Command::Import(args) => transfer::import(args, out),
        Command::Export(args) => transfer::export(args, out),
        Command::Grow(args) => grow(&args.device, out),
        Command::Upgrade(args) => upgrade(&args.device, out),
    }
}

/// Opens a device that no server has open.
fn open(path: &Path) -> Result<FileDevice> {
    Ok(open_unused(path)?.0)
}

/// Opens a device that no server has open; returns the mark of one that is down as well.
fn open_unused(path: &Path) -> Result<(FileDevice, Found)> {
    let mut device = FileDevice::open(path, true).with_context(|| path.display().to_string())?;
    let look = claim::look(&mut device, &Crc64Nvme, |other, ms| {
        wait(path, Some(other), ms)
    });
    let left = look.map_err(|why| in_use(path, why))?;
    Ok((device, left))
}

/// Waits, and tells for whom.
fn wait(path: &Path, other: Option<Other>, ms: u32) {
    if let Some(other) = other {
        eprintln!(
            "{}: it is marked as in use by {other}: waiting {ms} ms whether the mark changes",
            path.display()
        );
    }
    thread::sleep(Duration::from_millis(ms.into()));
}

/// Takes a device from all servers, which may have left their marks.
fn take(device: &mut FileDevice, path: &Path) -> Result<()> {
    let number = *new_uuid()?.first_chunk().context("a UUID is too short")?;
    let node = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let holder = Holder::new(u64::from_le_bytes(number), 0, &node);
    let taken = claim::take(device, &Crc64Nvme, &holder, |other, ms| {
        wait(path, other, ms);
    });
    taken.map_err(|why| {
        let is_in_use = why.get_ref().is_some_and(|why| why.is::<InUse>());
        if is_in_use {
            in_use(path, why)
        } else {
            anyhow!(why).context(path.display().to_string())
        }
    })
}

/// Says what to do about a device that a server has open.
fn in_use(path: &Path, why: impl fmt::Display) -> anyhow::Error {
    let name = path.display();
    anyhow!(
        "{name}: {why}: unmap it there; if that server is down for certain, `pi-sidecar fsck \
         --clear-in-use {name}` removes its mark"
    )
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
    let path = || args.device.display().to_string();
    // Who formats whatever is on it need not look first: the device is taken below.
    let mut device = match args.force {
        true => FileDevice::open(&args.device, true).with_context(path)?,
        false => open(&args.device)?,
    };
    let kind = (
        new_uuid()?,
        Version::from_number(args.format_version).unwrap_or_default(),
    );
    let slots = args.journal_slots;
    let slots = slots.unwrap_or_else(|| format::slots_for(device.blocks()));
    let zeroing = match (args.zero, args.no_zero) {
        (true, _) => Zeroing::Always,
        (false, true) => Zeroing::Never,
        (false, false) => Zeroing::IfDeviceCan,
    };
    if args.force {
        Layout::new(device.blocks(), slots)
            .map_err(Refused::Misfit)
            .with_context(path)?;
        take(&mut device, &args.device)?;
    }
    let formatted = format::format(&mut device, kind, slots, (args.force, zeroing), Crc64Nvme);
    let (volume, blank) = formatted.with_context(path)?;
    describe(&volume, out)?;
    let content = match blank {
        Blank::Zeroes(_) => "zeroes, which are checked",
        Blank::Unknown => {
            "unknown: blocks read as zeroes until they are written, and are not checked; --zero \
             makes zeroes of them"
        }
    };
    writeln!(out, "content of data blocks: {content}")?;
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
        stale,
        unreadable,
        missing,
        slots,
        pi_blocks,
    } = outcome;
    writeln!(
        out,
        "journal: {newest} blocks have their last write, {older} an older one, {torn} are torn, \
         {unreadable} cannot be read and are lost; {missing} records are missing"
    )?;
    if *stale != 0 {
        writeln!(
            out,
            "the device has lost writes: {stale} blocks have older data than those that were \
             flushed, and are errors until they are written again"
        )?;
    }
    if (*slots, *pi_blocks) != (0, 0) {
        writeln!(
            out,
            "written anew as they cannot be read: {slots} blocks of the journal, {pi_blocks} of tuples"
        )?;
    }
    Ok(())
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
    let scrub = volume.scrub(&mut device, |bad| {
        if (named.len() as u64) < NAMED_MAX {
            named.push(bad.to_string());
        }
    });
    let found = scrub.found;
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
    if found.not_empty != 0 {
        writeln!(
            out,
            "{} blocks read as zeroes and have something else at their place: they were \
             discarded, or have lost their tuples",
            found.not_empty
        )?;
    }
    Ok(found.bad() == 0)
}

fn grow(path: &Path, out: &mut impl Write) -> Result<bool> {
    let name = || path.display().to_string();
    let mut device = open(path)?;
    let volume = Volume::load_checked(&mut device, Crc64Nvme).with_context(name)?;
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
    let volume = Volume::load_checked(&mut device, Crc64Nvme).with_context(name)?;
    let upgraded = format::upgrade(&mut device, &volume, Crc64Nvme).with_context(name)?;
    describe(&upgraded, out)?;
    Ok(true)
}
