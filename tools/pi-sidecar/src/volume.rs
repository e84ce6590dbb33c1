// SPDX-License-Identifier: GPL-2.0

//! A formatted device: its superblock, the replay of its journal, its scrub.

use std::{
    error::Error,
    fmt,
    io, //
};

use proto::sidecar::{
    group::{
        self,
        GROUP_BLOCKS, //
    },
    layout::{
        Layout,
        JOURNAL,
        SUPERBLOCK, //
    },
    record::{
        self,
        Builder,
        Head,
        Record,
        Unit, //
    },
    recovery::{
        self,
        Recovery,
        Scratch, //
    },
    replay::{
        Mention,
        Outcome, //
    },
    ring::Ring,
    scrub::Scrub,
    superblock::{
        Refusal,
        Superblock, //
    },
    tuple::{
        Seal,
        Verdict, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

pub use proto::sidecar::recovery::OnDamage;

use crate::device::Device;

/// A block that a scrub could not give a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// A data block; `None`: it cannot be read.
    Data(u64, Option<Verdict>),
    /// A PI block, which cannot be read.
    PiBlock {
        /// The block of the device.
        at: u64,
        /// The first of the data blocks whose tuples it has.
        first: u64,
    },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(block, Some(verdict)) => write!(f, "data block {block}: {verdict}"),
            Self::Data(block, None) => write!(f, "data block {block}: it cannot be read"),
            Self::PiBlock { at, first } => write!(
                f,
                "block {at} of the device, which has the tuples of data blocks {first} to {}, \
                 cannot be read: `pi-sidecar fsck --repair` writes it anew",
                first.saturating_add(GROUP_BLOCKS - 1)
            ),
        }
    }
}

/// The replacement of tuples that cannot be read, in a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTuples {
    /// Tuples that say that the block is lost: reading it is an error until it is written.
    Lost,
    /// Tuples of the data that are there: if these are damaged, that is not found any more.
    OfData,
}

/// The reason why a device cannot be used.
#[derive(Debug)]
pub enum Fault {
    /// The superblock is not one of ours, or is damaged.
    Refused(Refusal),
    /// Its journal cannot be replayed.
    Journal(recovery::Fault<io::Error>),
    /// No copy of the superblock is known to be that of the sidecar.
    NoCopy,
    /// Reading or writing has failed.
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Journal(fault) => fault.fmt(f),
            Self::NoCopy => f.write_str(
                "no copy of its superblock fits its journal: if the device was enlarged, make it \
                 as small as it was, and repair it then",
            ),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for Fault {}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A [`Device`] for the code that the kernel module uses, too.
struct Shared<'a, D>(&'a mut D);

impl<D: Device> recovery::Device for Shared<'_, D> {
    type Error = io::Error;

    fn unit(&self) -> Unit {
        self.0.unit()
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        self.0.read(block, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        self.0.write(block, from, fua)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A formatted device.
#[derive(Clone, Copy, Debug)]
pub struct Volume<C> {
    superblock: Superblock,
    seal: Seal,
    crc: C,
}

impl<C: Checksum> Volume<C> {
    /// The volume that a superblock describes.
    pub fn new(superblock: Superblock, crc: C) -> Self {
        Self {
            seal: superblock.seal(&crc),
            superblock,
            crc,
        }
    }

    /// Reads the superblock.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be used.
    pub fn load(device: &mut impl Device, crc: C) -> Result<Self, Fault> {
        Self::load_from(device, SUPERBLOCK, crc)
    }

    /// Reads the superblock, and compares its size with that by the journal.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be used.
    pub fn load_checked(device: &mut impl Device, crc: C) -> Result<Self, Fault> {
        let volume = Self::load(device, crc)?;
        let mut block = [0; BLOCK_BYTES];
        let mut named = 0;
        for slot in (JOURNAL..).take(volume.layout().slots() as usize) {
            // One that cannot be read is looked at by who replays the journal.
            if device.read(slot, &mut block).is_ok() {
                named = named.max(record::device_blocks(&block, &volume.seal, &volume.crc));
            }
        }
        let found = volume.layout().device_blocks();
        match named > found {
            true => Err(Fault::Journal(recovery::Fault::Outgrown { found, named })),
            false => Ok(volume),
        }
    }

    /// Reads the superblock, or its copy, from a block.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be used.
    pub fn load_from(device: &mut impl Device, here: u64, crc: C) -> Result<Self, Fault> {
        let mut block = [0; BLOCK_BYTES];
        device.read(here, &mut block)?;
        let superblock = Superblock::parse(&block, here, device.blocks(), &crc);
        Ok(Self::new(superblock.map_err(Fault::Refused)?, crc))
    }

    /// Writes the superblock to a block.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    pub fn save_to(&self, device: &mut impl Device, here: u64) -> io::Result<()> {
        let mut block = [0; BLOCK_BYTES];
        self.superblock.write(&mut block, here, &self.crc);
        device.write(here, &block, true)
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    /// Returns the seal of the tuples.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Returns the checksum.
    pub fn checksum(&self) -> &C {
        &self.crc
    }

    /// Reads the data block `block`; returns its CRC, `None` if it cannot be read.
    pub(crate) fn crc_of(&self, device: &mut impl Device, block: u64) -> Option<u64> {
        let mut data = [0; BLOCK_BYTES];
        let (at, _) = self.layout().data(block)?;
        device.read(at, &mut data).ok()?;
        Some(self.crc.crc64(&data))
    }

    /// Writes a mark.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    pub fn write_mark(&self, device: &mut impl Device, head: Head) -> io::Result<Ring> {
        let mut block = [0; BLOCK_BYTES];
        let unit = self.superblock.unit(device.unit());
        let record = Builder::new(&mut block, unit).finish(head, &self.seal, &self.crc);
        device.write(self.layout().record(head.sequence), record, true)?;
        let (slots, blocks) = (self.layout().slots(), self.layout().device_blocks());
        Ok(Ring::after_mark(slots, unit, head.sequence, blocks))
    }

    /// Returns whether the device's journal has a record of this volume.
    pub(crate) fn has_records(&self, device: &mut impl Device) -> bool {
        let mut block = [0; BLOCK_BYTES];
        (JOURNAL..)
            .take(self.layout().slots() as usize)
            .any(|slot| {
                device.read(slot, &mut block).is_ok()
                    && Record::parse(&block, self.layout(), &self.seal, &self.crc).is_some()
            })
    }

    /// Replays the journal, and empties it. The order is that of [`replay`].
    ///
    /// # Errors
    ///
    /// Returns why the journal could not be replayed.
    pub fn replay(
        &self,
        device: &mut impl Device,
        on_damage: OnDamage,
    ) -> Result<(Outcome, Ring), Fault> {
        let mut ring = vec![[0; BLOCK_BYTES]; self.layout().slots() as usize];
        let mut list = vec![Mention::default(); Scratch::mentions(self.layout())];
        let scratch = Scratch {
            ring: &mut ring,
            list: &mut list,
            pi_block: &mut [0; BLOCK_BYTES],
            data: &mut [0; BLOCK_BYTES],
        };
        let mut device = Shared(device);
        Recovery::new(&self.superblock, &mut device, &self.crc)
            .run(scratch, on_damage)
            .map_err(|fault| match fault {
                recovery::Fault::Io(error) => Fault::Io(error),
                fault => Fault::Journal(fault),
            })
    }

    /// Reads and checks every data block; `report` gets what cannot be read, or is not right.
    pub fn scrub(&self, device: &mut impl Device, mut report: impl FnMut(Bad)) -> Scrub {
        let mut scrub = Scrub::default();
        let mut pi_block: Block = [0; BLOCK_BYTES];
        let zeroes = self.crc.crc64(&pi_block);
        while let Some(group) = scrub.group(self.layout()) {
            let at = self.layout().pi_block(group).unwrap_or(u64::MAX);
            if device.read(at, &mut pi_block).is_err() {
                report(Bad::PiBlock {
                    at,
                    first: group::block_at(group, 0),
                });
                scrub.skip();
                continue;
            }
            let crc = |block| self.crc_of(device, block);
            scrub.check(&pi_block, &self.seal, zeroes, crc, |block, verdict| {
                report(Bad::Data(block, verdict));
            });
        }
        scrub
    }

    /// Writes PI blocks anew that cannot be read; returns how many. To be done before a
    /// [replay](Self::replay), which then sets the tuples that records have.
    ///
    /// # Errors
    ///
    /// Returns the device's error for a write.
    pub fn mend_pi_blocks(&self, device: &mut impl Device, tuples: NewTuples) -> io::Result<u64> {
        let mut mended = 0u64;
        let mut pi_block: Block = [0; BLOCK_BYTES];
        for group in 0..self.layout().groups() {
            let at = self.layout().pi_block(group).unwrap_or(u64::MAX);
            if device.read(at, &mut pi_block).is_ok() {
                continue;
            }
            group::rebuild(&mut pi_block, group, &self.seal, |block| match tuples {
                NewTuples::Lost => None,
                NewTuples::OfData => self.crc_of(device, block),
            });
            device.write(at, &pi_block, false)?;
            mended = mended.saturating_add(1);
        }
        if mended != 0 {
            device.flush()?;
        }
        Ok(mended)
    }
}
