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

fn mark(block: &Block) -> Sector {
    let mark = block.get(MARK).and_then(|mark| mark.try_into().ok());
    mark.unwrap_or([0; MARK_BYTES])
}

/// Looks whether a server has the device open: if there is a mark, `wait` is asked to wait so many
/// milliseconds whether it changes. Returns what is there, of a server that is down.
///
/// # Errors
///
/// Returns who has it open.
pub fn look(
    device: &mut impl Device,
    crc: &impl Checksum,
    mut wait: impl FnMut(Other, u32),
) -> Result<Found, InUse> {
    let mut claim = Claim::new(0, Timing::SERVERS);
    let (mut left, mut other) = (Found::Free, Other(None));
    loop {
        match claim.step() {
            Step::Read => {
                // What cannot be read is repaired, or refused by who needs it.
                let Ok(Some(block)) = read(device, crc) else {
                    return Ok(Found::Free);
                };
                let (found, holder) = Found::parse(&mark(&block), crc);
                (left, other) = (found, Other(holder));
                // No lease is asked for, so all counts that is found.
                let _ = claim.read(found);
            }
            Step::Wait(ms) => {
                wait(other, ms);
                claim.waited();
            }
            Step::Busy | Step::Lost => return Err(InUse(other)),
            Step::Write { .. } | Step::Rest => return Ok(left),
        }
    }
}

/// Removes a mark, and only one that is as it was found if one was `found`; returns whether there
/// was one. Nothing beside it is written where the device has sectors of 512 bytes: a server that
/// is not down after all may be changing the superblock.
///
/// # Errors
///
/// Returns the device's error, or [`InUse`] if a server has written its mark meanwhile.
pub fn clear(
    device: &mut impl Device,
    crc: &impl Checksum,
    found: Option<Found>,
) -> io::Result<bool> {
    let free: Sector = [0; MARK_BYTES];
    let Some(mut block) = read(device, crc)? else {
        return Ok(false);
    };
    let (here, _) = Found::parse(&mark(&block), crc);
    if here == Found::Free || found.is_some_and(|found| found != here) {
        return Ok(false);
    }
    if !device.write_shared(SUPERBLOCK, MARK_OFFSET, &free)? {
        if let Some(mark) = block.get_mut(MARK) {
            mark.copy_from_slice(&free);
        }
        device.write(SUPERBLOCK, &block, true)?;
    }
    device.read_shared(SUPERBLOCK, &mut block)?;
    match Found::parse(&mark(&block), crc) {
        (Found::Free, _) => Ok(true),
        (_, holder) => Err(io::Error::other(InUse(Other(holder)))),
    }
}
