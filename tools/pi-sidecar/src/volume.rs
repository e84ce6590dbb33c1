// SPDX-License-Identifier: GPL-2.0

//! A formatted device: its superblock, the replay of its journal, its scrub.

use std::{
    error::Error,
    fmt,
    io, //
};

use proto::sidecar::{
    layout::{
        Layout,
        JOURNAL,
        SUPERBLOCK, //
    },
    record::{
        Builder,
        Head,
        ENTRIES_MAX, //
    },
    replay::{
        self,
        Live,
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

use crate::device::Device;

/// Why a device cannot be used.
#[derive(Debug)]
pub enum Fault {
    /// It is not one of ours, or is damaged.
    Refused(Refusal),
    /// The journal has no record, or misses some that were durable.
    Journal {
        /// The number of records that are missing; `None`: there is no record at all.
        missing: Option<u32>,
    },
    /// Reading or writing has failed.
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Journal { missing: None } => f.write_str(
                "its journal has no record: `pi-sidecar fsck --repair` starts a new one",
            ),
            Self::Journal {
                missing: Some(missing),
            } => write!(
                f,
                "its journal misses {missing} records: `pi-sidecar fsck --repair` goes on without \
                 them, and blocks whose tuples they had will be errors"
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

/// What to do with a journal that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Change nothing.
    Refuse,
    /// Replay what there is.
    Accept,
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
        Builder::new(&mut block).finish(head, &self.seal, &self.crc);
        device.write(self.layout().record(head.sequence), &block, true)?;
        Ok(Ring::after_mark(self.layout().slots(), head.sequence))
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
        let (layout, seal, crc) = (self.layout(), &self.seal, &self.crc);
        device.flush()?;
        let mut ring = vec![[0; BLOCK_BYTES]; layout.slots() as usize];
        for (at, block) in (JOURNAL..).zip(&mut ring) {
            device.read(at, block)?;
        }
        let Some(live) = Live::find(&ring, layout, seal, crc) else {
            if on_damage == OnDamage::Refuse {
                return Err(Fault::Journal { missing: None });
            }
            let head = Head {
                sequence: 1,
                tail: 1,
            };
            return Ok((Outcome::default(), self.write_mark(device, head)?));
        };
        let mut list = vec![Mention::default(); ENTRIES_MAX * ring.len()];
        let (list, missing) = live.list(&ring, layout, seal, crc, &mut list);
        if missing != 0 && on_damage == OnDamage::Refuse {
            return Err(Fault::Journal {
                missing: Some(missing),
            });
        }
        if let Some(mark) = live.clean(list).filter(|_| missing == 0) {
            let ring = Ring::after_mark(layout.slots(), mark);
            return Ok((Outcome::default(), ring));
        }
        let mut outcome = Outcome {
            missing,
            ..Outcome::default()
        };
        for mentions in replay::by_group(list) {
            self.replay_group(device, mentions, &mut outcome)?;
        }
        device.flush()?;
        Ok((outcome, self.write_mark(device, live.mark())?))
    }

    fn replay_group(
        &self,
        device: &mut impl Device,
        mentions: &[Mention],
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        let group = mentions.first().map(Mention::group);
        let Some(at) = group.and_then(|group| self.layout().home(group)) else {
            return Ok(());
        };
        let mut home: Block = [0; BLOCK_BYTES];
        device.read(at, &mut home)?;
        let crc = |block| self.crc_of(device, block);
        outcome.settle_group(mentions, &mut home, &self.seal, crc);
        device.write(at, &home, false)
    }

    /// Reads and checks every data block; `report` gets those that are not readable.
    ///
    /// # Errors
    ///
    /// Returns the device's error for a PI block.
    pub fn scrub(
        &self,
        device: &mut impl Device,
        mut report: impl FnMut(u64, Option<Verdict>),
    ) -> io::Result<Scrub> {
        let mut scrub = Scrub::default();
        let mut home: Block = [0; BLOCK_BYTES];
        while let Some(group) = scrub.group(self.layout()) {
            if let Some(at) = self.layout().home(group) {
                device.read(at, &mut home)?;
            }
            let crc = |block| self.crc_of(device, block);
            scrub.check(&home, &self.seal, crc, &mut report);
        }
        Ok(scrub)
    }
}
