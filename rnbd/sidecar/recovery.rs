// SPDX-License-Identifier: GPL-2.0

//! The replay of the journal of a device, step by step: [`replay`](super::replay) has the order and
//! the reasons.

use core::fmt;

use super::{
    layout::{
        Layout,
        JOURNAL, //
    },
    record::{
        self,
        Builder,
        Head,
        Unit,
        ENTRIES_MAX, //
    },
    replay::{
        self,
        Live,
        Mention,
        Outcome, //
    },
    ring::Ring,
    superblock::Superblock,
    tuple::Seal,
    Block,
    Checksum, //
};

/// A device that one IO after the other is done to.
pub trait Device {
    /// The error of an IO.
    type Error;

    /// Returns the unit that it can write without reading.
    fn unit(&self) -> Unit;

    /// Reads a block.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn read(&mut self, block: u64, to: &mut Block) -> Result<(), Self::Error>;

    /// Writes a block, or whole units at its start; with `fua` they are durable then.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> Result<(), Self::Error>;

    /// Makes durable what was written before.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn flush(&mut self) -> Result<(), Self::Error>;
}

/// The memory that a replay needs.
pub struct Scratch<'a> {
    /// Memory for as many blocks as the journal has slots.
    pub ring: &'a mut [Block],
    /// The list, of [`Scratch::mentions`] entries.
    pub list: &'a mut [Mention],
    /// Memory for a PI block or a record.
    pub pi_block: &'a mut Block,
    /// Memory for a data block.
    pub data: &'a mut Block,
}

impl Scratch<'_> {
    /// Returns the length of `list` for a layout.
    pub fn mentions(layout: &Layout) -> usize {
        (layout.slots() as usize).saturating_mul(ENTRIES_MAX)
    }
}

/// The action for a journal that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Change nothing.
    Refuse,
    /// Replay what there is.
    Accept,
}

/// A block that a replay has to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A block of the device, which is a slot of the journal.
    Journal(u64),
    /// A block of the device, which has the tuples of blocks that a record names.
    Tuples(u64),
    /// A data block that a record names.
    Data(u64),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(at) => write!(
                f,
                "block {at} of the device, of its journal, cannot be read: open it again when it \
                 can be, or `pi-sidecar fsck --repair` goes on without what is in it"
            ),
            Self::Tuples(at) => write!(
                f,
                "block {at} of the device, which has tuples, cannot be read: open it again when \
                 it can be, or `pi-sidecar fsck --repair` goes on without them, and blocks whose \
                 tuples the journal does not have will be errors"
            ),
            Self::Data(block) => write!(
                f,
                "data block {block} cannot be read, so it is not known which of its writes is \
                 there: open the device again when it can be, or `pi-sidecar fsck --repair` gives \
                 up what is in it"
            ),
        }
    }
}

/// The reason why a journal cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<E> {
    /// The journal has no record, though each formatted device has one.
    NoRecord,
    /// The journal misses records that were durable.
    Missing(u32),
    /// The superblock is from before a growth: a mark of use that came late has written it back.
    Outgrown {
        /// The number of blocks of the device by the superblock.
        found: u64,
        /// The number of blocks by the journal.
        named: u64,
    },
    /// A block that decides what the journal leads to cannot be read.
    Unreadable(Part, E),
    /// Reading or writing has failed.
    Io(E),
}

impl<E: fmt::Display> fmt::Display for Fault<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecord => f.write_str(
                "its journal has no record: `pi-sidecar fsck --repair` starts a new one",
            ),
            Self::Missing(missing) => write!(
                f,
                "its journal misses {missing} records: `pi-sidecar fsck --repair` goes on without \
                 them, and blocks whose tuples they had will be errors, or zeroes if these were of \
                 their first writes"
            ),
            Self::Outgrown { found, named } => write!(
                f,
                "its superblock is of a device of {found} blocks, from before a growth, and its \
                 journal of one of {named}: `pi-sidecar fsck --repair` uses the copy of the \
                 superblock"
            ),
            Self::Unreadable(part, error) => write!(f, "{part}: {error}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

/// The replay of a device's journal.
pub struct Recovery<'a, D, C> {
    layout: &'a Layout,
    seal: Seal,
    unit: Unit,
    device: &'a mut D,
    crc: &'a C,
}

impl<'a, D: Device, C: Checksum> Recovery<'a, D, C> {
    /// Returns a recovery of the device that `superblock` describes.
    pub fn new(superblock: &'a Superblock, device: &'a mut D, crc: &'a C) -> Self {
        Self {
            layout: &superblock.layout,
            seal: superblock.seal(crc),
            unit: superblock.unit(device.unit()),
            device,
            crc,
        }
    }

    /// Replays the journal and empties it; returns what was found, and the journal.
    ///
    /// # Errors
    ///
    /// Returns why it could not be replayed. Then it can be replayed again.
    pub fn run(
        mut self,
        scratch: Scratch<'_>,
        on_damage: OnDamage,
    ) -> Result<(Outcome, Ring), Fault<D::Error>> {
        let Scratch {
            ring,
            list,
            pi_block,
            data,
        } = scratch;
        self.device.flush().map_err(Fault::Io)?;
        let mut outcome = Outcome {
            slots: self.read_ring(ring, on_damage)?,
            ..Outcome::default()
        };
        self.check_size(ring)?;
        let Some(live) = Live::find(ring, self.layout, &self.seal, self.crc) else {
            if on_damage == OnDamage::Refuse {
                return Err(Fault::NoRecord);
            }
            let first = Head::of_mark(1, self.layout.device_blocks());
            self.mend_ring(ring, &outcome)?;
            return Ok((outcome, self.empty(first, pi_block)?));
        };
        let (list, missing) = live.list(ring, self.layout, &self.seal, self.crc, list);
        if missing != 0 && on_damage == OnDamage::Refuse {
            return Err(Fault::Missing(missing));
        }
        outcome.missing = missing;
        if let Some(mark) = live.clean(list).filter(|_| outcome.is_whole()) {
            return Ok((outcome, self.after(mark)));
        }
        for mentions in replay::by_group(list) {
            self.settle(mentions, &mut outcome, (pi_block, data), on_damage)?;
        }
        self.device.flush().map_err(Fault::Io)?;
        self.mend_ring(ring, &outcome)?;
        Ok((outcome, self.empty(live.mark(self.layout), pi_block)?))
    }

    /// Reads the ring; returns the number of slots that cannot be read, which count as empty ones.
    fn read_ring(
        &mut self,
        ring: &mut [Block],
        on_damage: OnDamage,
    ) -> Result<u32, Fault<D::Error>> {
        let mut unreadable = 0u32;
        for (at, block) in (JOURNAL..).zip(ring) {
            if let Err(error) = self.device.read(at, block) {
                if on_damage == OnDamage::Refuse {
                    return Err(Fault::Unreadable(Part::Journal(at), error));
                }
                block.fill(0);
                unreadable = unreadable.saturating_add(1);
            }
        }
        Ok(unreadable)
    }

    /// Compares the size by the superblock with that by the journal. No repair of the journal goes
    /// on with the smaller one: data would be lost that the copy of the superblock still has.
    fn check_size(&self, ring: &[Block]) -> Result<(), Fault<D::Error>> {
        let slots = ring.iter();
        let named = slots.map(|slot| record::device_blocks(slot, &self.seal, self.crc));
        let (named, found) = (named.max().unwrap_or(0), self.layout.device_blocks());
        match named > found {
            true => Err(Fault::Outgrown { found, named }),
            false => Ok(()),
        }
    }

    /// Writes the empty slots, if one of them could not be read, so that all can be read again.
    fn mend_ring(&mut self, ring: &[Block], outcome: &Outcome) -> Result<(), Fault<D::Error>> {
        let is_empty = |block: &Block| block.iter().all(|byte| *byte == 0);
        for (at, block) in (JOURNAL..).zip(ring) {
            if outcome.slots != 0 && is_empty(block) {
                self.device.write(at, block, false).map_err(Fault::Io)?;
            }
        }
        Ok(())
    }

    /// Writes the mark that empties the journal.
    fn empty(&mut self, mark: Head, block: &mut Block) -> Result<Ring, Fault<D::Error>> {
        let record = Builder::new(block, self.unit).finish(mark, &self.seal, self.crc);
        let at = self.layout.record(mark.sequence);
        self.device.write(at, record, true).map_err(Fault::Io)?;
        Ok(self.after(mark.sequence))
    }

    /// The journal with a mark.
    fn after(&self, mark: u64) -> Ring {
        let blocks = self.layout.device_blocks();
        Ring::after_mark(self.layout.slots(), self.unit, mark, blocks)
    }

    /// Sets the tuples of a group. Refused, it writes nothing: what is read decides for good.
    fn settle(
        &mut self,
        mentions: &[Mention],
        outcome: &mut Outcome,
        (pi_block, data): (&mut Block, &mut Block),
        on_damage: OnDamage,
    ) -> Result<(), Fault<D::Error>> {
        let group = mentions.first().map(Mention::group);
        let Some(at) = group.and_then(|group| self.layout.pi_block(group)) else {
            return Ok(());
        };
        if let Err(error) = self.device.read(at, pi_block) {
            if on_damage == OnDamage::Refuse {
                return Err(Fault::Unreadable(Part::Tuples(at), error));
            }
            // These are the tuples of no block.
            pi_block.fill(0);
            outcome.pi_blocks = outcome.pi_blocks.saturating_add(1);
        }
        let mut unreadable = None;
        outcome.settle_group(mentions, pi_block, &self.seal, |block| {
            let (at, _) = self.layout.data(block)?;
            if let Err(error) = self.device.read(at, data) {
                unreadable.get_or_insert((block, error));
                return None;
            }
            Some(self.crc.crc64(data))
        });
        match unreadable {
            Some((block, error)) if on_damage == OnDamage::Refuse => {
                Err(Fault::Unreadable(Part::Data(block), error))
            }
            _ => self.device.write(at, pi_block, false).map_err(Fault::Io),
        }
    }
}
