// SPDX-License-Identifier: GPL-2.0

//! A device while it is opened: one IO after the other, and the replay of its journal.

use block_ext::{
    bdev::BlockDevice,
    blocking::Blocking,
    Flags, //
};
use core::ops::Range;
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::errno;
use zerocopy::FromBytes;

use super::{
    lease::Lease,
    pages::zeroed,
    Crc,
    BLOCK_SECTORS,
    BLOCK_SIZE, //
};
use crate::{
    proto::SECTOR_SIZE,
    server::log_limit::{
        CHANGES_LIMIT,
        LOG_LIMIT, //
    },
    shown::Shown,
    sidecar::{
        claim::mark::{
            Sector,
            MARK_BYTES,
            MARK_OFFSET, //
        },
        layout::{
            FIRST_RECORD,
            SUPERBLOCK, //
        },
        record::{
            self,
            Unit, //
        },
        recovery::{
            Device,
            Fault,
            OnDamage,
            Recovery,
            Scratch, //
        },
        replay::{
            Mention,
            Outcome, //
        },
        ring::Ring,
        superblock::{
            Refusal,
            Superblock,
            Unreadable, //
        },
        Block,
        BLOCK_BYTES, //
    },
};

/// The mark of use in block 0, in bytes.
const MARK: Range<usize> = MARK_OFFSET..MARK_OFFSET + MARK_BYTES;
const _: () = assert!(MARK_BYTES == SECTOR_SIZE as usize);

/// Returns the unit that a device writes without reading.
fn unit(device: &BlockDevice) -> Unit {
    Unit::of_limits(device.logical_block_bytes(), device.physical_block_bytes())
}

/// Returns whether the mark of use is written with the superblock: the device can write no single
/// sector of 512 bytes, or reads a block for it, and may lose all of that block.
pub(super) fn writes_whole_blocks(device: &BlockDevice) -> bool {
    !unit(device).fits_sectors()
}

/// A device that one IO after the other is done to.
pub(super) struct Disk {
    /// Does nothing without the lease, if there is one.
    device: Blocking<Option<Arc<Lease>>>,
    /// Memory for a block that is read or written.
    block: KBox<Block>,
}

/// Returns where a block begins, in bytes.
fn byte_of(block: u64) -> Result<u64> {
    block.checked_mul(BLOCK_SIZE.into()).ok_or(EINVAL)
}

impl Disk {
    /// Returns `device` with memory for its IO; `None` if it has no block of 4096 bytes, or larger
    /// logical ones. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn of_blocks(device: Arc<BlockDevice>) -> Result<Option<Self>> {
        let has_blocks = device.capacity_sectors() >= BLOCK_SECTORS.into();
        if !has_blocks || device.logical_block_bytes() > BLOCK_SIZE {
            return Ok(None);
        }
        Ok(Some(Self {
            device: Blocking::new(device, 0, None, None)?,
            block: zeroed()?,
        }))
    }

    /// Does IO only while the lease lasts, and waits for it.
    pub(super) fn under(mut self, lease: Arc<Lease>) -> Self {
        self.device.set_permission(Some(lease));
        self
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &BlockDevice {
        self.device.device()
    }

    fn blocks(&self) -> u64 {
        self.device().capacity_sectors() / u64::from(BLOCK_SECTORS)
    }

    /// Returns the superblock; `None` if there is no sidecar.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` if the sidecar cannot be used, with a log line; that of the device if it does not
    /// say whether there is one, with a log line.
    pub(super) fn superblock(&mut self, label: &CStr) -> Result<Option<Superblock>> {
        let parsed = match self.read_in_place(SUPERBLOCK) {
            Ok(()) => Superblock::parse(&self.block, SUPERBLOCK, self.blocks(), &Crc),
            Err(error) => Err(self.without_superblock(error, label)?),
        };
        match parsed {
            Ok(superblock) => Ok(Some(superblock)),
            Err(Refusal::NotFormatted) => Ok(None),
            Err(refusal) => {
                if LOG_LIMIT.allow().is_some() {
                    pr_err!("{label}: not opened: {}\n", Shown(refusal));
                }
                Err(errno::EUCLEAN)
            }
        }
    }

    /// Returns what is to be said of a device whose block 0 cannot be read.
    #[cold]
    fn without_superblock(&mut self, error: Error, label: &CStr) -> Result<Refusal> {
        let others = [self.has_journal(), self.has_copy()];
        match Unreadable::judge(error, others, |error| error == errno::EILSEQ) {
            Unreadable::NoSidecar => Ok(Refusal::NotFormatted),
            Unreadable::Damaged => Ok(Refusal::Checksum),
            Unreadable::Unknown(error) => {
                if LOG_LIMIT.allow().is_some() {
                    pr_err!(
                        "{label}: not opened: it cannot be read whether it has a sidecar: \
                         {error:?}\n"
                    );
                }
                Err(error)
            }
        }
    }

    fn read_in_place(&mut self, block: u64) -> Result {
        self.device.read(byte_of(block)?, &mut self.block[..])
    }

    /// Returns whether the device has a journal, usable or not.
    fn has_journal(&mut self) -> Result<bool> {
        self.read_in_place(FIRST_RECORD)?;
        Ok(record::has_magic(&self.block))
    }

    /// Returns whether the last block is the copy of a superblock, usable or not. That of a device
    /// which is larger than its sidecar is elsewhere.
    fn has_copy(&mut self) -> Result<bool> {
        let last = self.blocks().saturating_sub(1);
        self.read_in_place(last)?;
        let parsed = Superblock::parse(&self.block, last, self.blocks(), &Crc);
        Ok(parsed != Err(Refusal::NotFormatted))
    }

    /// Returns whether the mark of use is written with the superblock.
    pub(super) fn writes_whole_blocks(&self) -> bool {
        writes_whole_blocks(self.device())
    }

    /// Reads block 0; returns its mark of use. Sleeps until the device answers.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub(super) fn read_mark(&mut self) -> Result<Sector> {
        self.read_in_place(SUPERBLOCK)?;
        let mark = self.block.get(MARK).and_then(|mark| mark.try_into().ok());
        mark.ok_or(EINVAL)
    }

    /// Returns block 0, which was read last, and the number of blocks that the device has now.
    pub(super) fn block_0(&self) -> (&Block, u64) {
        (&self.block, self.blocks())
    }

    /// Returns the UUID of the sidecar whose block 0 was read last.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        let (block, blocks) = self.block_0();
        let superblock = Superblock::parse(block, SUPERBLOCK, blocks, &Crc);
        superblock.ok().map(|superblock| superblock.uuid)
    }

    /// Writes the mark of use into block 0, which was read just before; with FUA if it is to be
    /// `durable`. `ending`: the superblock that a growth is writing now.
    ///
    /// # Errors
    ///
    /// `EILSEQ` if the superblock would be written with it, and was not read well; those of the
    /// device.
    pub(super) fn write_mark(
        &mut self,
        mark: &Sector,
        durable: bool,
        ending: Option<&Superblock>,
    ) -> Result {
        let fua = if durable { Flags::FUA } else { Flags::NONE };
        let flags = Flags::META | fua;
        if self.writes_whole_blocks() {
            if !Superblock::write_back(&mut self.block, ending, &Crc) {
                return Err(errno::EILSEQ);
            }
            if let Some(place) = self.block.get_mut(MARK) {
                place.copy_from_slice(mark);
            }
            let at = byte_of(SUPERBLOCK)?;
            return self.device.write(at, &self.block[..], flags);
        }
        self.device.write(MARK_OFFSET as u64, mark, flags)
    }

    /// Replays the journal; returns the superblock and the empty journal.
    ///
    /// # Errors
    ///
    /// As [`superblock`](Self::superblock), and `EUCLEAN` if the journal is damaged.
    pub(super) fn recover(mut self, label: &CStr) -> Result<(KBox<Superblock>, Ring)> {
        let superblock = self.superblock(label)?.ok_or(errno::EUCLEAN)?;
        let superblock = KBox::new(superblock, GFP_KERNEL)?;
        let layout = &superblock.layout;
        let ring_bytes = (layout.slots() as usize).saturating_mul(BLOCK_BYTES);
        let mut ring = KVVec::from_elem(0u8, ring_bytes, GFP_KERNEL)?;
        let ring = <[Block]>::mut_from_bytes(&mut ring).map_err(|_| EINVAL)?;
        let mentions = Scratch::mentions(layout);
        let mut list = KVVec::from_elem(Mention::default(), mentions, GFP_KERNEL)?;
        let (mut pi_block, mut data) = (zeroed()?, zeroed()?);
        let scratch = Scratch {
            ring,
            list: &mut list,
            pi_block: &mut pi_block,
            data: &mut data,
        };
        let recovered = Recovery::new(&superblock, &mut self, &Crc).run(scratch, OnDamage::Refuse);
        match recovered {
            Ok((outcome, ring)) => {
                log_replay(label, &outcome);
                Ok((superblock, ring))
            }
            Err(fault) => Err(refused(label, fault)),
        }
    }
}

fn log_replay(label: &CStr, outcome: &Outcome) {
    if *outcome != Outcome::default() && CHANGES_LIMIT.allow().is_some() {
        let Outcome {
            newest,
            older,
            torn,
            stale,
            ..
        } = outcome;
        pr_info!(
            "{label}: journal replayed: {newest} blocks have their last write, {older} an older \
             one, {torn} are lost\n"
        );
        if *stale != 0 {
            pr_err!(
                "{label}: the device has lost writes: {stale} blocks have older data than those \
                 that were flushed, and are errors until they are written again\n"
            );
        }
    }
}

/// Logs why a device is not opened; returns the error of the OPEN.
#[cold]
fn refused(label: &CStr, fault: Fault<Error>) -> Error {
    let is_logged = LOG_LIMIT.allow().is_some();
    let (fault, error) = match fault {
        Fault::Io(error) => {
            if is_logged {
                pr_err!("{label}: its journal cannot be replayed: {error:?}\n");
            }
            return error;
        }
        Fault::Unreadable(part, error) => {
            if is_logged {
                pr_err!("{label}: not opened: {}: {error:?}\n", Shown(part));
            }
            return error;
        }
        Fault::NoRecord => (Fault::<&str>::NoRecord, errno::EUCLEAN),
        Fault::Missing(count) => (Fault::Missing(count), errno::EUCLEAN),
        Fault::Outgrown { found, named } => (Fault::Outgrown { found, named }, errno::EUCLEAN),
    };
    if is_logged {
        pr_err!("{label}: not opened: {}\n", Shown(fault));
    }
    error
}

impl Device for Disk {
    type Error = Error;

    fn unit(&self) -> Unit {
        unit(self.device())
    }

    fn read(&mut self, block: u64, to: &mut Block) -> Result {
        self.device.read(byte_of(block)?, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> Result {
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        self.device.write(byte_of(block)?, from, flags)
    }

    fn flush(&mut self) -> Result {
        self.device.flush()
    }
}
