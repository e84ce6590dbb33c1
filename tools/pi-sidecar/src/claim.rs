// SPDX-License-Identifier: GPL-2.0

//! The mark that a server has a device open.

use std::{
    error::Error,
    fmt,
    io,
    ops::Range, //
};

use proto::sidecar::{
    claim::{
        mark::{
            Found,
            Other,
            Sector,
            MARK_BYTES,
            MARK_OFFSET, //
        },
        Claim,
        Step,
        Timing, //
    },
    layout::SUPERBLOCK,
    superblock::{
        Refusal,
        Superblock, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::device::Device;

const MARK: Range<usize> = MARK_OFFSET..MARK_OFFSET + MARK_BYTES;

/// A server has the device open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse(Other);

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} uses the device", self.0)
    }
}

impl Error for InUse {}

/// Reads block 0; `None` if there is no sidecar, so that nothing in it is a mark.
fn read(device: &mut impl Device, crc: &impl Checksum) -> io::Result<Option<Block>> {
    let mut block = [0; BLOCK_BYTES];
    device.read_shared(SUPERBLOCK, &mut block)?;
    let parsed = Superblock::parse(&block, SUPERBLOCK, device.blocks(), crc);
    Ok((parsed != Err(Refusal::NotFormatted)).then_some(block))
}

/// Looks whether a server has the device open: if there is a mark, `wait` is asked to wait so many
/// milliseconds whether it changes.
///
/// # Errors
///
/// Returns who has it open.
pub fn look(
    device: &mut impl Device,
    crc: &impl Checksum,
    mut wait: impl FnMut(Other, u32),
) -> Result<(), InUse> {
    let mut claim = Claim::new(0, Timing::SERVERS);
    let mut other = Other(None);
    loop {
        match claim.step() {
            Step::Read => {
                // What cannot be read is repaired, or refused by who needs it.
                let Ok(Some(block)) = read(device, crc) else {
                    return Ok(());
                };
                let mark = block.get(MARK).and_then(|mark| mark.try_into().ok());
                let (found, holder) = Found::parse(&mark.unwrap_or([0; MARK_BYTES]), crc);
                other = Other(holder);
                // No lease is asked for, so all counts that is found.
                let _ = claim.read(found);
            }
            Step::Wait(ms) => {
                wait(other, ms);
                claim.waited();
            }
            Step::Busy | Step::Lost => return Err(InUse(other)),
            Step::Write { .. } | Step::Rest => return Ok(()),
        }
    }
}

/// Removes a mark; returns whether there was one.
///
/// # Errors
///
/// Returns the device's error.
pub fn clear(device: &mut impl Device, crc: &impl Checksum) -> io::Result<bool> {
    let free: Sector = [0; MARK_BYTES];
    let Some(mut block) = read(device, crc)? else {
        return Ok(false);
    };
    match block.get_mut(MARK) {
        Some(mark) if *mark != free => mark.copy_from_slice(&free),
        _ => return Ok(false),
    }
    device.write(SUPERBLOCK, &block, true)?;
    Ok(true)
}
