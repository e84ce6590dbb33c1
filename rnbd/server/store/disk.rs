// SPDX-License-Identifier: GPL-2.0

//! A device while it is opened: one IO after the other, and the replay of its journal.

use block_ext::{
    bdev::BlockDevice,
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
    Flags,
    Op, //
};
use core::ops::Range;
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    errno,
    pages::PageBlock,
    sync::{
        atomic::{
            AtomicU32,
            Ordering::Relaxed, //
        },
        Completion, //
    },
};
use zerocopy::FromBytes;

use super::{
    lease::{
        Lease,
        Use, //
    },
    pages::zeroed,
    Crc,
    BLOCK_SECTORS,
    BLOCK_SIZE, //
};
use crate::{
    proto::SECTOR_SIZE,
    server::session::{
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
/// And its sector.
const MARK_SECTOR: u64 = MARK_OFFSET as u64 / SECTOR_SIZE as u64;
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

/// Where the submitter of an IO waits.
#[pin_data]
struct Waiter {
    #[pin]
    done: Completion,
    /// The errno, or 0.
    errno: AtomicU32,
}

/// An IO that its submitter waits for.
pub(super) struct SyncIo {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<SyncIo>>,
    waiter: Arc<Waiter>,
}

impl BioData for SyncIo {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.bios
    }

    fn end(self, result: Result) {
        let Self {
            device,
            bios,
            waiter,
        } = self;
        // Before the submitter goes on: it has others, and drops the last ones.
        drop((device, bios));
        let errno = result.map_or_else(|error| error.to_errno().unsigned_abs(), |()| 0);
        waiter.errno.store(errno, Relaxed);
        waiter.done.complete_all();
    }
}

/// A device that one IO after the other is done to.
pub(super) struct Disk {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<SyncIo>>,
    page: Arc<PageBlock>,
    waiter: Arc<Waiter>,
    /// For a block that is read or written.
    block: KBox<Block>,
    /// Without it nothing is done.
    lease: Option<Arc<Lease>>,
}

impl Disk {
    /// Returns `device`, `None` if it has no blocks of 4096 bytes.
    pub(super) fn of_blocks(
        device: Arc<BlockDevice>,
        bios: Arc<BioPool<SyncIo>>,
    ) -> Result<Option<Self>> {
        let has_blocks = device.capacity_sectors() >= BLOCK_SECTORS.into();
        if !has_blocks || device.logical_block_bytes() > BLOCK_SIZE {
            return Ok(None);
        }
        let waiter = pin_init!(Waiter {
            done <- Completion::new(),
            errno: AtomicU32::new(0),
        });
        Ok(Some(Self {
            device,
            bios,
            page: Arc::new(PageBlock::new(0)?, GFP_KERNEL)?,
            waiter: Arc::pin_init(waiter, GFP_KERNEL)?,
            block: zeroed()?,
            lease: None,
        }))
    }

    /// Does IO only while the lease lasts, and waits for it.
    pub(super) fn under(self, lease: Arc<Lease>) -> Self {
        Self {
            lease: Some(lease),
            ..self
        }
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &BlockDevice {
        &self.device
    }

    fn blocks(&self) -> u64 {
        self.device.capacity_sectors() / u64::from(BLOCK_SECTORS)
    }

    /// Does an IO of the first `len_bytes` of a block; a flush has none.
    fn io(&self, op: Op, flags: Flags, block: u64, len_bytes: u32) -> Result {
        let sector = block.checked_mul(BLOCK_SECTORS.into()).ok_or(EINVAL)?;
        self.io_at(op, flags, sector, len_bytes)
    }

    /// Does an IO of `len_bytes` from a sector on.
    fn io_at(&self, op: Op, flags: Flags, sector: u64, len_bytes: u32) -> Result {
        let mut bio = loop {
            if let Some(lease) = &self.lease {
                lease.wait()?;
            }
            self.waiter.done.reinit();
            let io = SyncIo {
                device: self.device.clone(),
                bios: self.bios.clone(),
                waiter: self.waiter.clone(),
            };
            let bio = Bio::new(io, op, flags, sector);
            // Its memory may have taken longer than the lease: others wait for it as well.
            let lease = self.lease.as_ref();
            if lease.is_none_or(|lease| lease.state() == Use::Permitted) {
                break bio;
            }
            drop(bio);
            self.waiter.done.wait();
        };
        let filled = match op {
            Op::Flush => bio.set_len_bytes(0),
            _ => bio.add_pages(self.page.clone(), 0, len_bytes),
        };
        // Dropping the bio ends it with an error.
        match filled {
            Ok(()) => bio.submit(),
            Err(_) => drop(bio),
        }
        self.waiter.done.wait();
        match i32::try_from(self.waiter.errno.load(Relaxed)) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(Error::from_errno(errno.wrapping_neg())),
            Err(_) => Err(EIO),
        }
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
        self.io(Op::Read, Flags::SYNC, block, BLOCK_SIZE)?;
        self.page.copy_out(0, &mut self.block[..])
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
        writes_whole_blocks(&self.device)
    }

    /// Reads block 0; returns its mark of use.
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
        let flags = Flags::META | Flags::SYNC | fua;
        if self.writes_whole_blocks() {
            if !Superblock::write_back(&mut self.block, ending, &Crc) {
                return Err(errno::EILSEQ);
            }
            if let Some(place) = self.block.get_mut(MARK) {
                place.copy_from_slice(mark);
            }
            self.page.copy_in(0, &self.block[..])?;
            return self.io(Op::Write, flags, SUPERBLOCK, BLOCK_SIZE);
        }
        self.page.copy_in(0, mark)?;
        self.io_at(Op::Write, flags, MARK_SECTOR, SECTOR_SIZE)
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
        let (mut home, mut data) = (zeroed()?, zeroed()?);
        let scratch = Scratch {
            ring,
            list: &mut list,
            home: &mut home,
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
        unit(&self.device)
    }

    fn read(&mut self, block: u64, to: &mut Block) -> Result {
        self.io(Op::Read, Flags::SYNC, block, BLOCK_SIZE)?;
        self.page.copy_out(0, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> Result {
        self.page.copy_in(0, from)?;
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        let len_bytes = u32::try_from(from.len()).map_err(|_| EINVAL)?;
        self.io(Op::Write, flags | Flags::SYNC, block, len_bytes)
    }

    fn flush(&mut self) -> Result {
        self.io(Op::Flush, Flags::NONE, 0, 0)
    }
}
