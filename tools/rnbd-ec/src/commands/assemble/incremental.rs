// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec assemble --incremental`: udev says which device has appeared.

use std::{
    fs::File,
    io::Write,
    path::Path,
    thread,
    time::{
        Duration,
        Instant, //
    },
};

use anyhow::{
    Context,
    Result, //
};
use rustix::fs::{
    flock,
    FlockOperation, //
};
use seglog::{
    members::{
        DATA_COLUMNS,
        MEMBERS, //
    },
    superblock::Superblock, //
};

use super::{
    candidates_of,
    check_missing,
    control,
    latest,
    read,
    sort,
    start,
    Args,
    Candidate,
    Status, //
};
use crate::{
    commands::status::arrays,
    show, //
};

/// The time between two looks for a member that has failed.
const LOOK: Duration = Duration::from_millis(200);

/// Assembles the array of a device if no other member has to be waited for: two are there, and
/// what is not there has failed before, and has not appeared in `--wait` seconds. It never makes an
/// array degraded.
///
/// # Errors
///
/// Returns why it is not assembled, if the next member does not change that.
pub(super) fn incremental(device: &Path, args: &Args, out: &mut impl Write) -> Result<Status> {
    let end = Instant::now() + Duration::from_secs(args.wait.into());
    let uuid = read(device)?.superblock.uuid;
    let shown = show::uuid(&uuid);
    let file = File::open(control(&args.sysfs));
    let file = file.context("the module is not loaded: modprobe rnbd-ec")?;
    loop {
        // It may take long to find that a disk of another array is dead: without the lock.
        let candidates = current(candidates_of(uuid, args)?);
        // udev asks for several members at a time: the second one finds what the first one made.
        flock(&file, FlockOperation::LockExclusive).context("another rnbd-ec is not waited for")?;
        if let Some(array) = arrays(&args.sysfs)?.iter().find(|a| a.uuid == shown) {
            writeln!(out, "array {shown} is assembled: it is {}", array.name())?;
            return Ok(Status::Clean);
        }
        if candidates.len() < DATA_COLUMNS {
            writeln!(out, "array {shown} waits for more members")?;
            return Ok(Status::Clean);
        }
        let found = sort(candidates)?;
        if let Err(why) = check_missing(&found) {
            writeln!(out, "array {shown} waits: {why}")?;
            return Ok(Status::Clean);
        }
        if found.iter().flatten().count() == MEMBERS || Instant::now() >= end {
            return start(&found, args, out);
        }
        flock(&file, FlockOperation::Unlock)?;
        thread::sleep(LOOK);
    }
}

/// Leaves out devices that were replaced: another one is the member, as the latest superblock has
/// it.
fn current(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let id = |of: &Superblock, member: usize| of.devices.get(member).map(|device| device.id);
    if let Some(latest) = latest(candidates.iter()) {
        candidates.retain(
            |Candidate {
                 superblock: own, ..
             }| { id(own, own.member) == id(&latest, own.member) },
        );
    }
    candidates
}
