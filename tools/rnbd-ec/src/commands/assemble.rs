// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec assemble`.

mod incremental;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs::{
        self,
        OpenOptions, //
    },
    io::{
        self,
        Write, //
    },
    path::{
        Path,
        PathBuf, //
    },
};

use anyhow::{
    anyhow,
    bail,
    ensure,
    Context,
    Result, //
};
use rnbd_ec::proto::command::Command;
use seglog::{
    fault::Fault,
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    slots::choose as choose_epoch,
    superblock::Superblock, //
};

use super::{
    status::arrays,
    Status, //
};
use crate::{
    media::{
        Medium,
        Sharing, //
    },
    show,
    slots::Slots, //
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The members, in any order; without them all block devices are looked at
    #[arg(num_args = 2..=3)]
    device: Vec<PathBuf>,
    /// The UUID of the array, with or without dashes; without it there must be one only
    #[arg(long, conflicts_with = "device", value_parser = show::parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// The name of the disk; default: the first of ec0, ec1, ... that is not taken
    #[arg(long)]
    name: Option<String>,
    /// Assembles the array though a member is not found that is in sync: it has to be
    /// resynchronised when it is there again
    #[arg(long)]
    degraded: bool,
    /// Assembles the array though a slot of a superblock is damaged, and may have had what only a
    /// missing member knows: what was written since the other slot may be lost
    #[arg(long)]
    force: bool,
    /// Assembles the array of this device, which has just appeared, if that is all that it waited
    /// for; for udev
    #[arg(long, value_name = "DEVICE")]
    #[arg(conflicts_with_all = ["device", "uuid", "degraded", "force"])]
    incremental: Option<PathBuf>,
    /// Seconds for which --incremental waits for a member that has failed before
    #[arg(long, default_value_t = 10, requires = "incremental")]
    wait: u32,
    /// Folder where sysfs is mounted
    #[arg(long, default_value = "/sys")]
    sysfs: PathBuf,
    /// Folder with the device nodes
    #[arg(long, default_value = "/dev")]
    dev: PathBuf,
}

/// A device with a superblock.
pub(super) struct Candidate {
    path: PathBuf,
    pub(super) superblock: Superblock,
    may_hide: bool,
    /// Whether it cannot be written: the module refuses a line that names it.
    is_read_only: bool,
}

/// The members of an array that were found.
type Found = [Option<Candidate>; MEMBERS];

/// Assembles an array.
///
/// # Errors
///
/// Returns why it is not.
pub(super) fn assemble(args: &Args, out: &mut impl Write) -> Result<Status> {
    if let Some(device) = &args.incremental {
        return incremental::incremental(device, args, out);
    }
    let candidates = if args.device.is_empty() {
        let all = scan(&args.sysfs, &args.dev)?;
        choose(all, args)?
    } else {
        args.device
            .iter()
            .map(|path| look(path, &args.sysfs))
            .collect::<Result<_>>()?
    };
    let found = sort(candidates)?;
    // Who names two devices has chosen; who names one that is read-only has not.
    let has_chosen = !args.device.is_empty() && !found.iter().flatten().any(|one| one.is_read_only);
    if !has_chosen && !args.degraded {
        check_missing(&found)?;
    }
    start(&found, args, out)
}

/// Has the module assemble an array of these members, and says what it is then.
fn start(found: &Found, args: &Args, out: &mut impl Write) -> Result<Status> {
    if !args.force {
        check_slots(found)?;
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => free_name(&args.sysfs)?,
    };
    write_line(found, &name, args)?;
    let uuid = found.iter().flatten().next();
    let uuid = uuid.map(|found| show::uuid(&found.superblock.uuid));
    writeln!(out, "{name}: assembled, array {}", uuid.unwrap_or_default())?;
    let missing = missing(found);
    if missing.is_empty() {
        return Ok(Status::Clean);
    }
    writeln!(
        out,
        "{name}: degraded: without member {}",
        show::members(missing)
    )?;
    Ok(Status::Degraded)
}

/// Returns the members that were not found, or cannot be written: the array is assembled without
/// them, or not at all.
fn missing(found: &Found) -> Members {
    (0..MEMBERS)
        .filter(|m| !matches!(found.get(*m), Some(Some(found)) if !found.is_read_only))
        .collect()
}

/// Whether a device is read-only, as its disk says.
fn is_read_only(path: &Path, sysfs: &Path) -> bool {
    let name = fs::canonicalize(path).unwrap_or_default();
    let name = name.strip_prefix("/dev").ok().map(Path::as_os_str);
    let name = name.or(path.file_name()).unwrap_or_default();
    let name = name.to_string_lossy().replace('/', "!");
    let said = fs::read_to_string(sysfs.join("class/block").join(name).join("ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

/// Reads the superblock of a device.
pub(super) fn read(path: &Path) -> Result<Candidate> {
    let shown = || path.display().to_string();
    let medium = Medium::open(path, Sharing::Shared).with_context(shown)?;
    let slots = Slots::read(&medium);
    let found = slots.superblock();
    let superblock = found.map_err(|why| anyhow!("{}: {why}", shown()))?;
    Ok(Candidate {
        path: path.to_path_buf(),
        superblock,
        may_hide: slots.may_hide(),
        is_read_only: false,
    })
}

/// Looks at a device that is to be assembled.
fn look(path: &Path, sysfs: &Path) -> Result<Candidate> {
    Ok(Candidate {
        is_read_only: is_read_only(path, sysfs),
        ..read(path)?
    })
}

/// Returns the names of all disks and partitions that no other device is made of.
fn names(sysfs: &Path) -> Result<Vec<String>> {
    let block = sysfs.join("block");
    let list = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut names = Vec::new();
    for disk in list(&block)? {
        let parts = list(&disk).unwrap_or_default();
        let parts = parts
            .into_iter()
            .filter(|part| part.join("partition").exists());
        for folder in std::iter::once(disk.clone()).chain(parts) {
            let is_held = list(&folder.join("holders")).is_ok_and(|held| !held.is_empty());
            let name = folder
                .file_name()
                .map(|name| name.to_string_lossy().replace('!', "/"));
            names.extend(name.filter(|_| !is_held));
        }
    }
    Ok(names)
}

/// Looks for members on all block devices.
fn scan(sysfs: &Path, dev: &Path) -> Result<Vec<Candidate>> {
    let names = names(sysfs)?;
    // What cannot be read, or has no superblock, is no member.
    Ok(names
        .iter()
        .filter_map(|name| look(&dev.join(name), sysfs).ok())
        .collect())
}

/// Returns the devices that are members of an array.
fn candidates_of(uuid: [u8; 16], args: &Args) -> Result<Vec<Candidate>> {
    let mut all = scan(&args.sysfs, &args.dev)?;
    all.retain(|candidate| candidate.superblock.uuid == uuid);
    Ok(all)
}

/// Returns the members of the array that is wanted.
fn choose(candidates: Vec<Candidate>, args: &Args) -> Result<Vec<Candidate>> {
    let mut by_uuid: BTreeMap<[u8; 16], Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_uuid
            .entry(candidate.superblock.uuid)
            .or_default()
            .push(candidate);
    }
    let assembled = arrays(&args.sysfs)?;
    if let Some(uuid) = args.uuid {
        let shown = show::uuid(&uuid);
        if let Some(array) = assembled.iter().find(|array| array.uuid == shown) {
            bail!("array {shown} is assembled: it is {}", array.name());
        }
        let found = by_uuid.remove(&uuid);
        return found.ok_or_else(|| anyhow!("no device is a member of array {shown}"));
    }
    let is_assembled = |uuid: &[u8; 16]| {
        let shown = show::uuid(uuid);
        assembled.iter().any(|array| array.uuid == shown)
    };
    by_uuid.retain(|uuid, _| !is_assembled(uuid));
    ensure!(
        by_uuid.len() < 2,
        "there are several arrays: choose one by --uuid: {}",
        by_uuid
            .keys()
            .map(show::uuid)
            .collect::<Vec<_>>()
            .join(", ")
    );
    let only = by_uuid.into_values().next();
    only.context("no device is a member of an array that is not assembled")
}

/// Puts devices into the order of the members that they are.
fn sort(candidates: Vec<Candidate>) -> Result<Found> {
    let mut found: Found = [None, None, None];
    let mut first: Option<(Superblock, PathBuf)> = None;
    for candidate in candidates {
        let Candidate {
            path, superblock, ..
        } = &candidate;
        let (of, before) = first.get_or_insert_with(|| (*superblock, path.clone()));
        if !of.is_of_same_array(superblock) {
            bail!(
                "{} is of another array than {}",
                path.display(),
                before.display()
            );
        }
        let number = superblock.member;
        let Some(to) = found.get_mut(number) else {
            continue;
        };
        if let Some(other) = to {
            bail!(
                "{} and {} are both member {number}: give the devices, without the one that was \
                 replaced",
                other.path.display(),
                path.display()
            );
        }
        *to = Some(candidate);
    }
    let count = found.iter().flatten().count();
    ensure!(
        count >= DATA_COLUMNS,
        "{count} of {MEMBERS} members is there, and {DATA_COLUMNS} are needed: bring the others back"
    );
    Ok(found)
}

/// Returns the superblock that knows the most. Those that are there may know of different epochs;
/// the latest one that fails a member counts.
fn latest<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<Superblock> {
    let superblocks = candidates.map(|candidate| candidate.superblock);
    superblocks.max_by_key(|superblock| {
        let epoch = superblock.epoch;
        (epoch.incarnation, epoch.failed.count(), superblock.writes)
    })
}

/// Checks that no member is absent that would be in sync if it were there.
fn check_missing(found: &Found) -> Result<()> {
    let latest = latest(found.iter().flatten());
    let failed = latest
        .map(|superblock| superblock.epoch.failed)
        .unwrap_or_default();
    let in_sync = missing(found).minus(failed);
    ensure!(
        in_sync.is_empty(),
        "member {} is in sync, and is not found, or is read-only: bring it back, or make it \
         writable, or assemble with --degraded: it has to be resynchronised then",
        show::members(in_sync)
    );
    Ok(())
}

/// Checks that an epoch can be chosen, and that no damaged slot may have one that only a missing
/// member knows. The module says the same, by the same rule, in its log only.
fn check_slots(found: &Found) -> Result<()> {
    // The module is given those that can be written.
    let given = found
        .each_ref()
        .map(|one| one.as_ref().filter(|one| !one.is_read_only));
    let superblocks = given.map(|one| one.map(|one| one.superblock));
    let hiding = given.into_iter().flatten().filter(|one| one.may_hide);
    let hiding = hiding.map(|one| one.superblock.member).collect();
    let member = match choose_epoch::<Infallible>(&superblocks, hiding, false) {
        Err(Fault::Unsure(member)) => member,
        Err(why) => bail!("{}", why.to_string().replace("force=1", "--force")),
        Ok(_) => return Ok(()),
    };
    let path = given.get(member).copied().flatten().map(|one| &one.path);
    let missing = missing(found);
    let what = if missing.is_empty() {
        "the device that took the place of another one".to_owned()
    } else {
        format!("member {}", show::members(missing))
    };
    bail!(
        "{}: a slot of its superblock is damaged, or cannot be read, and may have had a newer \
         epoch: bring back {what}, or give up what was written since by --force",
        path.map(|path| path.display().to_string())
            .unwrap_or_default()
    )
}

/// Returns the first name of a disk that is not taken.
fn free_name(sysfs: &Path) -> Result<String> {
    let mut names = (0u32..).map(|number| format!("ec{number}"));
    let free = names.find(|name| !sysfs.join("block").join(name).exists());
    free.context("no name is free")
}

/// Returns the module's file for new arrays.
fn control(sysfs: &Path) -> PathBuf {
    sysfs.join("class/rnbd-ec/ctl/assemble")
}

/// Writes the line that assembles the array.
fn write_line(found: &Found, name: &str, args: &Args) -> Result<()> {
    let mut paths = Vec::new();
    for candidate in found.iter().flatten().filter(|one| !one.is_read_only) {
        let path = std::path::absolute(&candidate.path)?;
        let shown = path.to_str().map(str::to_owned);
        let shown = shown.with_context(|| format!("{} is no UTF-8", path.display()))?;
        ensure!(
            !shown.contains([' ', ',', '\n']),
            "{shown}: the module takes no path with spaces and commas"
        );
        paths.push(shown);
    }
    let force = if args.force { " force=1" } else { "" };
    let line = format!(
        "mode=assemble name={name} members={}{force}",
        paths.join(",")
    );
    // The module says the same, in its log only.
    Command::parse(line.as_bytes()).map_err(|wrong| anyhow!("{wrong}"))?;
    let control = control(&args.sysfs);
    let opened = OpenOptions::new().write(true).open(&control);
    let mut file = opened.map_err(|error| {
        let is_absent = error.kind() == io::ErrorKind::NotFound;
        let why = anyhow!(error).context(control.display().to_string());
        if is_absent {
            why.context("the module is not loaded: modprobe rnbd-ec")
        } else {
            why
        }
    })?;
    let written = file.write_all(line.as_bytes());
    written.with_context(|| {
        format!("the module refuses '{line}', and says why in the kernel's log (dmesg)")
    })
}
