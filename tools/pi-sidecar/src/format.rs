// SPDX-License-Identifier: GPL-2.0

//! A device is formatted, and grows.

use std::{
    error::Error,
    fmt,
    io,
    ops::Range, //
};

use proto::sidecar::{
    group::{
        self,
        Blank, //
    },
    growth::{
        self,
        Growth,
        Step, //
    },
    layout::{
        Layout,
        Misfit,
        JOURNAL,
        SLOTS_MAX,
        SUPERBLOCK, //
    },
    record::{
        self,
        Head, //
    },
    superblock::{
        Superblock,
        Version, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::{
    device::Device,
    volume::{
        Fault,
        Volume, //
    },
};

/// The reason why a device is not formatted or does not grow.
#[derive(Debug)]
pub enum Refused {
    /// The first or the last MiB is not empty, so that something may be on the device.
    NotEmpty,
    /// The layout is not possible.
    Misfit(Misfit),
    /// The device cannot grow.
    Growth(growth::Refusal),
    /// Reading or writing has failed.
    Io(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmpty => f.write_str(
                "its first or last MiB is not empty: --force formats it, and destroys what is on it",
            ),
            Self::Misfit(misfit) => misfit.fmt(f),
            Self::Growth(refusal) => write!(f, "it does not grow: {refusal}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for Refused {}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A device of so many blocks, 256 MiB, or more has the long journal.
const LONG_FROM_BLOCKS: u64 = 65_536;

/// Returns the number of slots that the journal of a device of `blocks` blocks has, unless another
/// one is asked for: with the superblock they are 1 MiB, or 4 MiB.
pub fn slots_for(blocks: u64) -> u32 {
    if blocks < LONG_FROM_BLOCKS {
        255
    } else {
        1023
    }
}

/// The blocks at either end in which other programs have their signatures: 1 MiB.
const LOOKED_AT_BLOCKS: u64 = 256;

/// Returns whether the first and the last MiB have zeroes only.
fn is_empty(device: &mut impl Device) -> io::Result<bool> {
    let blocks = device.blocks();
    let last = blocks.saturating_sub(LOOKED_AT_BLOCKS);
    let mut data: Block = [0; BLOCK_BYTES];
    for block in (0..LOOKED_AT_BLOCKS.min(blocks)).chain(last..blocks) {
        device.read(block, &mut data)?;
        if data.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The treatment of the content of data blocks when a device is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// The device makes zeroes of it if it can do so without writing them.
    IfDeviceCan,
    /// Becomes zeroes in any case.
    Always,
    /// Stays, and so does the space that a file or a volume of thin provisioning has.
    Never,
}

/// Blocks that are made zeroes together, 1 GiB.
const ZEROED_BLOCKS: u64 = 1 << 18;

/// Makes zeroes of the data blocks; returns what is in them then.
fn make_blank<C: Checksum>(
    volume: &Volume<C>,
    device: &mut impl Device,
    zeroing: Zeroing,
) -> io::Result<Blank> {
    if zeroing == Zeroing::Never {
        return Ok(Blank::Unknown);
    }
    let zeroes: Block = [0; BLOCK_BYTES];
    for segment in volume.layout().segments() {
        let blocks = segment.groups.saturating_mul(group::GROUP_BLOCKS);
        let end = segment.start.saturating_add(blocks);
        let mut first = segment.start;
        while first < end {
            let count = end.saturating_sub(first).min(ZEROED_BLOCKS);
            if !device.zero(first, count)? {
                if zeroing == Zeroing::IfDeviceCan {
                    return Ok(Blank::Unknown);
                }
                for block in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
                    device.write(block, &zeroes, false)?;
                }
            }
            first = first.saturating_add(count);
        }
    }
    Ok(Blank::Zeroes(volume.checksum().crc64(&zeroes)))
}

/// Writes the PI blocks of groups whose blocks were never written.
fn write_back<C: Checksum>(
    volume: &Volume<C>,
    device: &mut impl Device,
    blank: Blank,
) -> io::Result<()> {
    let mut pi_block: Block = [0; BLOCK_BYTES];
    for number in 0..volume.layout().groups() {
        group::format(&mut pi_block, number, volume.seal(), blank);
        if let Some(at) = volume.layout().pi_block(number) {
            device.write(at, &pi_block, false)?;
        }
    }
    device.flush()
}

/// The blocks that a journal of any device has.
fn journal_blocks(device: &impl Device) -> Range<u64> {
    let end = JOURNAL.saturating_add(SLOTS_MAX.into());
    JOURNAL..end.min(device.blocks())
}

/// Formats a device; all of its blocks read as zeroes then. The superblock is written last: a crash
/// before leaves a device that is not formatted. Returns what is in the data blocks, too.
///
/// # Errors
///
/// Returns why the device is not formatted.
pub fn format<C: Checksum>(
    device: &mut impl Device,
    (uuid, version): ([u8; 16], Version),
    slots: u32,
    (force, zeroing): (bool, Zeroing),
    crc: C,
) -> Result<(Volume<C>, Blank), Refused> {
    let layout = Layout::new(device.blocks(), slots).map_err(Refused::Misfit)?;
    if !force && !is_empty(device)? {
        return Err(Refused::NotEmpty);
    }
    device.write(SUPERBLOCK, &[0; BLOCK_BYTES], true)?;
    let superblock = Superblock {
        uuid,
        version,
        layout,
    };
    let volume = Volume::new(superblock, crc);
    // No record of an older sidecar shall remain: a repair may find the copy of its superblock.
    for slot in journal_blocks(device) {
        device.write(slot, &[0; BLOCK_BYTES], false)?;
    }
    let blank = make_blank(&volume, device, zeroing)?;
    write_back(&volume, device, blank)?;
    volume.write_mark(device, Head::of_mark(1, layout.device_blocks()))?;
    volume.save_to(device, layout.copy())?;
    volume.save_to(device, SUPERBLOCK)?;
    Ok((volume, blank))
}

/// Takes the space that a device has got since it was formatted, step by step as the server does
/// for a device in use: a crash before the last step leaves the device as it was.
///
/// # Errors
///
/// Returns why the device does not grow.
pub fn grow<C: Checksum>(
    device: &mut impl Device,
    volume: &Volume<C>,
    crc: C,
) -> Result<Volume<C>, Refused> {
    let mut growth = Growth::new();
    growth
        .start(volume.superblock(), device.blocks())
        .map_err(Refused::Growth)?;
    while let Some(step) = growth.next_step() {
        let taken = take(device, &growth, step, volume);
        if let Some(superblock) = growth.ended(taken.is_ok()) {
            return Ok(Volume::new(superblock, crc));
        }
        taken?;
    }
    Err(Refused::Growth(growth::Refusal::Running))
}

/// Takes a step of a growth.
fn take<C: Checksum>(
    device: &mut impl Device,
    growth: &Growth,
    step: Step,
    volume: &Volume<C>,
) -> io::Result<()> {
    let Some(place) = growth.place(step) else {
        return device.flush();
    };
    let mut block: Block = [0; BLOCK_BYTES];
    for (index, at) in (0..step.blocks()).zip(place..) {
        growth.fill(step, index, &mut block, volume.seal(), volume.checksum());
        device.write(at, &block, step.is_fua())?;
    }
    Ok(())
}

/// Gives a device the newest version. Nothing else changes: records of each version are read in
/// both.
///
/// # Errors
///
/// Returns the device's error.
pub fn upgrade<C: Checksum>(
    device: &mut impl Device,
    volume: &Volume<C>,
    crc: C,
) -> io::Result<Volume<C>> {
    let superblock = Superblock {
        version: Version::default(),
        ..*volume.superblock()
    };
    let upgraded = Volume::new(superblock, crc);
    upgraded.save_to(device, volume.layout().copy())?;
    upgraded.save_to(device, SUPERBLOCK)?;
    Ok(upgraded)
}

/// Returns whether no slot of the journal has a record, of whatever device.
fn is_journal_gone(device: &mut impl Device) -> bool {
    let mut block: Block = [0; BLOCK_BYTES];
    !journal_blocks(device)
        .any(|slot| device.read(slot, &mut block).is_ok() && record::has_magic(&block))
}

/// Finds the copy of the superblock: in the last block, or before it if the device is larger than
/// its sidecar. The journal says whether a copy is that of the sidecar: an older sidecar may have
/// left its own, and a block of data may look like one, but does not know the device's UUID.
fn find_copy<C: Checksum + Copy>(device: &mut impl Device, crc: C) -> Result<Volume<C>, Fault> {
    let last = device.blocks().saturating_sub(1);
    let mut in_last = Fault::NoCopy;
    let mut others = Vec::new();
    for block in (0..=last).rev() {
        match Volume::load_from(device, block, crc) {
            Ok(volume) if volume.layout().copy() != block => {}
            Ok(volume) if volume.has_records(device) => return Ok(volume),
            Ok(volume) => others.push(volume),
            Err(fault) if block == last => in_last = fault,
            Err(_) => {}
        }
    }
    // If the start of the device is overwritten the only copy is that of the sidecar.
    match *others {
        [] => Err(in_last),
        [volume] if volume.layout().copy() == last && is_journal_gone(device) => Ok(volume),
        _ => Err(Fault::NoCopy),
    }
}

/// Returns whether the superblock of `volume` is from before the device was formatted: a mark of
/// use that came late has written it back. The journal is that of the copy then.
pub fn is_replaced<C: Checksum + Copy>(
    device: &mut impl Device,
    volume: &Volume<C>,
    crc: C,
) -> bool {
    let last = device.blocks().saturating_sub(1);
    !volume.has_records(device)
        && Volume::load_from(device, last, crc).is_ok_and(|copy| copy.has_records(device))
}

/// Writes the superblock anew from its copy.
///
/// # Errors
///
/// Returns why there is no copy that can be used.
pub fn restore<C: Checksum + Copy>(device: &mut impl Device, crc: C) -> Result<Volume<C>, Fault> {
    let volume = find_copy(device, crc)?;
    volume.save_to(device, SUPERBLOCK)?;
    Ok(volume)
}
