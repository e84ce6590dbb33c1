// SPDX-License-Identifier: GPL-2.0

//! The mark that a server has a device open.

use std::{
    error::Error,
    fmt,
    io,
    ops::Range,
    time::Instant, //
};

use proto::sidecar::{
    claim::{
        advance::{
            Advance,
            Beside,
            End,
            Errand,
            Next, //
        },
        mark::{
            Found,
            Holder,
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

/// A device that is being taken.
struct Taking<'a, D, C> {
    device: &'a mut D,
    crc: &'a C,
    holder: &'a Holder,
    claim: Claim,
    /// Block 0, as it was read last, and who has written its mark.
    block: Block,
    other: Other,
    /// The number of the last mark.
    stamp: u64,
    /// The time up to which the claim knows that it has passed.
    known: Instant,
}

impl<D: Device, C: Checksum> Taking<'_, D, C> {
    /// Says how much time has passed.
    fn pass(&mut self) {
        let now = Instant::now();
        let passed_ms = now.duration_since(self.known).as_millis();
        self.claim
            .pass(u32::try_from(passed_ms).unwrap_or(u32::MAX));
        self.known = now;
    }

    fn read(&mut self, advance: &mut Advance) {
        // What cannot be read is written over.
        if self
            .device
            .read_shared(SUPERBLOCK, &mut self.block)
            .is_err()
        {
            self.block = [0; BLOCK_BYTES];
        }
        self.pass();
        let (found, holder) = Found::parse(&mark(&self.block), self.crc);
        self.other = Other(holder);
        // No lease is asked for, so all counts that is found.
        let _ = advance.read(&mut self.claim, found, Beside::Same);
    }

    /// Writes a mark.
    fn write(&mut self, advance: &mut Advance) -> io::Result<()> {
        let mut sector: Sector = [0; MARK_BYTES];
        self.stamp = self.stamp.wrapping_add(1);
        self.holder.mark(self.stamp, &mut sector, self.crc);
        replace(self.device, &mut self.block, &sector)?;
        self.pass();
        advance.written(&mut self.claim);
        Ok(())
    }
}

/// Takes a device with a sidecar from all servers, before it is formatted. A server that was
/// believed to be down may have looked at its mark just now, and be about to write it anew: so it
/// is done as a server takes a device ([`Claim`]), with a mark of this program, `holder`. After
/// that no server goes on, however late its mark comes. `wait`: as for [`look`], and without a name
/// where it is not another mark that is waited for.
///
/// # Errors
///
/// Returns the device's error, or [`InUse`] if a server has the device open.
pub fn take(
    device: &mut impl Device,
    crc: &impl Checksum,
    holder: &Holder,
    mut wait: impl FnMut(Option<Other>, u32),
) -> io::Result<()> {
    if matches!(read(device, crc), Ok(None)) {
        return Ok(());
    }
    let mut taking = Taking {
        device,
        crc,
        holder,
        claim: Claim::new(holder.opening, Timing::SERVERS),
        block: [0; BLOCK_BYTES],
        other: Other(None),
        stamp: 0,
        known: Instant::now(),
    };
    let mut advance = Advance::new(Errand::Take, &mut taking.claim);
    loop {
        taking.pass();
        match advance.next(&mut taking.claim, true) {
            Next::Read => taking.read(&mut advance),
            Next::Write { .. } | Next::Remove => taking.write(&mut advance)?,
            Next::Wait { ms, is_watching } => {
                wait(is_watching.then_some(taking.other), ms);
                taking.pass();
                advance.waited(&mut taking.claim);
            }
            Next::End(End::Held) => return Ok(()),
            Next::End(End::TooSlow) => return Err(io::ErrorKind::TimedOut.into()),
            Next::End(_) => return Err(io::Error::other(InUse(taking.other))),
        }
    }
}

/// Writes the sector of the mark of block 0, which was read just before, durably.
fn replace(device: &mut impl Device, block: &mut Block, sector: &Sector) -> io::Result<()> {
    if device.write_shared(SUPERBLOCK, MARK_OFFSET, sector)? {
        return Ok(());
    }
    if let Some(mark) = block.get_mut(MARK) {
        mark.copy_from_slice(sector);
    }
    device.write(SUPERBLOCK, block, true)
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
    replace(device, &mut block, &free)?;
    device.read_shared(SUPERBLOCK, &mut block)?;
    match Found::parse(&mark(&block), crc) {
        (Found::Free, _) => Ok(true),
        (_, holder) => Err(io::Error::other(InUse(Other(holder)))),
    }
}
