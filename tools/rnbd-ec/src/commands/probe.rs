// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec probe`: what udev is told of a device.

use std::{
    io::Write,
    path::PathBuf, //
};

use anyhow::Result;

use super::{
    assemble::read,
    Status, //
};
use crate::show;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The device
    device: PathBuf,
}

/// Prints the properties of a member as udev imports them. Those that begin with `ID_FS_` are the
/// names of blkid, by which other programs keep away from members of an array.
///
/// # Errors
///
/// Returns that it is no member.
pub(super) fn probe(args: &Args, out: &mut impl Write) -> Result<Status> {
    let superblock = read(&args.device)?.superblock;
    writeln!(out, "ID_FS_USAGE=raid")?;
    writeln!(out, "ID_FS_TYPE=rnbd_ec_member")?;
    writeln!(out, "ID_RNBD_EC_UUID={}", show::uuid(&superblock.uuid))?;
    writeln!(out, "ID_RNBD_EC_MEMBER={}", superblock.member)?;
    Ok(Status::Clean)
}
