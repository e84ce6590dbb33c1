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
    pages::zeroed,
    Crc,
    BLOCK_SECTORS,
    BLOCK_SIZE, //
};
use crate::{
    shown::Shown,
    sidecar::{
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
            Superblock, //
        },
        Block,
        BLOCK_BYTES, //
    },
};

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
        }))
    }

    fn blocks(&self) -> u64 {
        self.device.capacity_sectors() / u64::from(BLOCK_SECTORS)
    }

    /// Does an IO of the first `len_bytes` of a block; a flush has none.
    fn io(&self, op: Op, flags: Flags, block: u64, len_bytes: u32) -> Result {
        self.waiter.done.reinit();
        let io = SyncIo {
            device: self.device.clone(),
            bios: self.bios.clone(),
            waiter: self.waiter.clone(),
        };
        let sector = block.checked_mul(BLOCK_SECTORS.into()).ok_or(EINVAL)?;
        let mut bio = Bio::new(io, op, flags, sector);
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
    /// `EUCLEAN` if the sidecar cannot be used, with a log line.
    pub(super) fn superblock(&mut self, label: &CStr) -> Result<Option<Superblock>> {
        let read = self.read_in_place(SUPERBLOCK);
        if read.is_err() && !self.has_journal() && !self.has_copy() {
            // Of other devices block 0 need not be readable: not that of a new dm-integrity.
            return Ok(None);
        }
        let parsed = read
            .map_err(|_| Refusal::Checksum)
            .and_then(|()| Superblock::parse(&self.block, SUPERBLOCK, self.blocks(), &Crc));
        match parsed {
            Ok(superblock) => Ok(Some(superblock)),
            Err(Refusal::NotFormatted) => Ok(None),
            Err(refusal) => {
                pr_err!("{label}: not opened: {}\n", Shown(refusal));
                Err(errno::EUCLEAN)
            }
        }
    }

    fn read_in_place(&mut self, block: u64) -> Result {
        self.io(Op::Read, Flags::SYNC, block, BLOCK_SIZE)?;
        self.page.copy_out(0, &mut self.block[..])
    }

    /// Returns whether the device has a journal, usable or not.
    fn has_journal(&mut self) -> bool {
        self.read_in_place(FIRST_RECORD).is_ok() && record::has_magic(&self.block)
    }

    /// Returns whether the last block is the copy of a superblock, usable or not. That of a device
    /// which is larger than its sidecar is elsewhere.
    fn has_copy(&mut self) -> bool {
        let last = self.blocks().saturating_sub(1);
        self.read_in_place(last).is_ok() && {
            let parsed = Superblock::parse(&self.block, last, self.blocks(), &Crc);
            parsed != Err(Refusal::NotFormatted)
        }
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
    if *outcome != Outcome::default() {
        let Outcome {
            newest,
            older,
            torn,
            ..
        } = outcome;
        pr_info!(
            "{label}: journal replayed: {newest} blocks have their last write, {older} an older \
             one, {torn} are lost\n"
        );
    }
}

#[cold]
fn refused(label: &CStr, fault: Fault<Error>) -> Error {
    match fault {
        Fault::Io(error) => {
            pr_err!("{label}: its journal cannot be replayed: {error:?}\n");
            error
        }
        Fault::Unreadable(part, error) => {
            pr_err!("{label}: not opened: {}: {error:?}\n", Shown(part));
            error
        }
        Fault::NoRecord => {
            pr_err!("{label}: not opened: {}\n", Shown(Fault::<&str>::NoRecord));
            errno::EUCLEAN
        }
        Fault::Missing(count) => {
            let fault = Fault::<&str>::Missing(count);
            pr_err!("{label}: not opened: {}\n", Shown(fault));
            errno::EUCLEAN
        }
    }
}

impl Device for Disk {
    type Error = Error;

    fn unit(&self) -> Unit {
        let device = &self.device;
        Unit::of_limits(device.logical_block_bytes(), device.physical_block_bytes())
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
