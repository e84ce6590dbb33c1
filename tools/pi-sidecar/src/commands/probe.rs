// SPDX-License-Identifier: GPL-2.0

//! `pi-sidecar probe`: what udev is told of a device.

use std::{
    io::Write,
    path::Path, //
};

use anyhow::{
    Context,
    Result, //
};

use super::hex;
use crate::{
    checksum::Crc64Nvme,
    device::FileDevice,
    volume::Volume, //
};

/// Prints the properties of a device with a sidecar as udev imports them, also of one that a server
/// has open. Those that begin with `ID_FS_` are the names of blkid, by which other programs keep
/// away from what is not theirs.
///
/// # Errors
///
/// Returns that it has none.
pub(super) fn probe(path: &Path, out: &mut impl Write) -> Result<bool> {
    let name = || path.display().to_string();
    let mut device = FileDevice::open(path, false).with_context(name)?;
    let volume = Volume::load(&mut device, Crc64Nvme).with_context(name)?;
    writeln!(out, "ID_FS_USAGE=raid")?;
    writeln!(out, "ID_FS_TYPE=pi_sidecar")?;
    writeln!(out, "ID_PI_SIDECAR_UUID={}", hex(&volume.superblock().uuid))?;
    Ok(true)
}
