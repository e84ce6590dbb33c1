// SPDX-License-Identifier: GPL-2.0

//! `pi-sidecar fsck`.

use std::{
    io::Write,
    path::PathBuf, //
};

use anyhow::{
    Context,
    Result, //
};
use proto::sidecar::{
    claim::mark::Found,
    recovery,
    superblock::Refusal, //
};

use super::{
    open_unused,
    report, //
};
use crate::{
    checksum::Crc64Nvme,
    claim,
    device::FileDevice,
    format,
    volume::{
        Fault,
        NewTuples,
        OnDamage,
        Volume, //
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The block device or file
    device: PathBuf,
    /// Takes the superblock from its copy, goes on without records that are missing, and writes
    /// blocks of tuples anew that cannot be read: the data blocks that they are of are lost
    #[arg(long)]
    repair: bool,
    /// Computes the tuples that cannot be read from the data that are there: whatever it is, it is
    /// good then
    #[arg(long, requires = "repair")]
    trust_data: bool,
    /// Removes the mark that a server has the device open; only if none has
    #[arg(long)]
    clear_in_use: bool,
}

/// Replays the journal, and repairs; returns whether all was well.
///
/// # Errors
///
/// Returns why it could not be done.
pub(super) fn fsck(args: &Args, out: &mut impl Write) -> Result<bool> {
    let path = || args.device.display().to_string();
    let (mut device, left) = if args.clear_in_use {
        let device = FileDevice::open(&args.device, true).with_context(path)?;
        (device, Found::Free)
    } else {
        open_unused(&args.device)?
    };
    if args.clear_in_use && claim::clear(&mut device, &Crc64Nvme, None).with_context(path)? {
        writeln!(out, "mark of use: removed")?;
    }
    let volume = match Volume::load_checked(&mut device, Crc64Nvme) {
        Err(
            Fault::Io(_)
            | Fault::Refused(Refusal::Checksum | Refusal::NotFormatted)
            | Fault::Journal(recovery::Fault::Outgrown { .. }),
        ) if args.repair => restore(&mut device, out).with_context(path)?,
        Ok(volume) if args.repair && format::is_replaced(&mut device, &volume, Crc64Nvme) => {
            restore(&mut device, out).with_context(path)?
        }
        loaded => loaded.with_context(path)?,
    };
    let on_damage = if args.repair {
        OnDamage::Accept
    } else {
        OnDamage::Refuse
    };
    let mended = if args.repair {
        mend_pi_blocks(&volume, &mut device, args, out).with_context(path)?
    } else {
        0
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
    // Of a server that is down; the next opening need not wait. Another one is of one that lives.
    claim::clear(&mut device, &Crc64Nvme, Some(left)).with_context(path)?;
    Ok(outcome.is_whole() && mended == 0)
}

/// Takes the superblock from its copy.
fn restore(device: &mut FileDevice, out: &mut impl Write) -> Result<Volume<Crc64Nvme>> {
    let volume = format::restore(device, Crc64Nvme)?;
    let copy = volume.layout().copy();
    writeln!(
        out,
        "superblock: written anew from its copy in block {copy}"
    )?;
    Ok(volume)
}

/// Writes PI blocks anew that cannot be read; returns how many.
fn mend_pi_blocks(
    volume: &Volume<Crc64Nvme>,
    device: &mut FileDevice,
    args: &Args,
    out: &mut impl Write,
) -> Result<u64> {
    let (tuples, what) = if args.trust_data {
        (
            NewTuples::OfData,
            "their data blocks count as good as they are",
        )
    } else {
        (
            NewTuples::Lost,
            "their data blocks are lost until they are written again",
        )
    };
    let mended = volume.mend_pi_blocks(device, tuples)?;
    if mended != 0 {
        writeln!(
            out,
            "tuples: {mended} blocks of 256 could not be read, and were written anew: {what}"
        )?;
    }
    Ok(mended)
}
