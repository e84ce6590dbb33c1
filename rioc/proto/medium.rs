// SPDX-License-Identifier: GPL-2.0

//! The places where a store keeps its blocks: pages of memory, or a log.

use seglog::{
    collect::Purpose,
    log::Wait,
    superblock::SUPERBLOCK_BYTES,
    Checksum, //
};

use super::{
    entry::Entry,
    index::Changes,
    slot::{
        Blocks,
        Stored, //
    },
};

/// An IO of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Io {
    /// The write of the batch with this number.
    Batch(u64),
    /// A flush of batches.
    Flush,
    /// A step of a dump: a page, the flush behind them, or a superblock.
    Dump,
}

/// Carries out what a store begins. None of it waits.
pub trait Actions {
    /// An operation or a lease that was waiting begins: its user lets it take its next step.
    fn begins(&mut self, tag: u32);
    /// Begins to write a batch. The bytes stay until it has ended.
    fn write_batch(&mut self, sequence: u64, at: u64, column: &[u8]);
    /// Begins a flush, as a step of a dump or of batches.
    fn flush(&mut self, io: Io);
    /// Returns the memory of the page that is written next; that of the one before is not in use.
    fn page(&mut self) -> &mut [u8];
    /// Begins to write that page.
    fn write_page(&mut self, at: u64);
    /// Begins to write a superblock, with FUA.
    fn write_superblock(&mut self, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]);
}

/// The purpose of an operation, the blocks that it stores, and the slots that it changes.
pub type Need = (Purpose, usize, usize);

/// Keeps blocks, and is told of changes. The numbers of batches are 0 in memory.
pub trait Medium: Changes {
    /// Makes sure that there is room. `entry` returns that of a slot.
    ///
    /// # Errors
    ///
    /// Returns what is waited for; then nothing may be put or changed.
    fn prepare(
        &mut self,
        need: Need,
        entry: impl Fn(u32) -> Entry,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Wait>;

    /// An operation begins to put blocks.
    fn begin(&mut self);

    /// The operation was refused: nothing has changed, and what it has put is given back.
    fn undo(&mut self);

    /// Stores blocks, each with its CRC.
    fn put<'b>(
        &mut self,
        blocks: impl Iterator<Item = (u32, &'b [u8])>,
        crc: &impl Checksum,
    ) -> Option<Stored>;

    /// A read of an extent begins.
    fn begin_read(&mut self, stored: &Stored);

    /// A read of an extent has ended.
    fn end_read(&mut self, stored: &Stored);

    /// The operation has changed objects with these hashes, a bit for each.
    fn touch(&mut self, bits: u64);

    /// Returns the last batch that may have changed such an object.
    fn changed_by(&self, bits: u64) -> u64;

    /// Returns the last batch that has something of what was changed so far.
    fn last(&self) -> u64;

    /// Returns how many blocks there are, and how many there may be.
    fn room(&self) -> (u64, u64);

    /// Returns the identity of what it keeps, if that is the same in each of its lives.
    fn identity(&self) -> Option<u64> {
        None
    }
}

/// Pages of the user, who keeps the CRC of each block beside it.
pub trait Pages {
    /// Takes pages for blocks; `None` if there are none.
    fn put<'b>(&mut self, blocks: impl Iterator<Item = (u32, &'b [u8])>) -> Option<Stored>;

    /// Gives back those of some blocks of an extent.
    fn free(&mut self, stored: Stored, blocks: Blocks);
}

/// A store in memory only.
#[derive(Clone, Debug)]
pub struct Ram<P> {
    /// The pages.
    pub pages: P,
    blocks: u64,
    blocks_max: u64,
    /// Extents that the operation has put: one extent, or one for each edge of a copy.
    put: [Option<(Stored, u8)>; 2],
}

impl<P> Ram<P> {
    /// Begins with empty memory for some blocks.
    pub const fn new(pages: P, blocks_max: u64) -> Self {
        Self {
            pages,
            blocks: 0,
            blocks_max,
            put: [None; 2],
        }
    }
}

impl<P: Pages> Changes for Ram<P> {
    fn changed(&mut self, _slot: u32) {}

    fn freed(&mut self, stored: Stored, blocks: Blocks) {
        self.blocks = self.blocks.saturating_sub(blocks.count().into());
        self.pages.free(stored, blocks);
    }
}

impl<P: Pages> Medium for Ram<P> {
    fn prepare(
        &mut self,
        _need: Need,
        _entry: impl Fn(u32) -> Entry,
        _with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Wait> {
        Ok(())
    }

    fn begin(&mut self) {
        self.put = [None; 2];
    }

    fn undo(&mut self) {
        for (stored, blocks) in core::mem::take(&mut self.put).into_iter().flatten() {
            self.freed(stored, Blocks::of(0, blocks));
        }
    }

    fn put<'b>(
        &mut self,
        blocks: impl Iterator<Item = (u32, &'b [u8])>,
        _crc: &impl Checksum,
    ) -> Option<Stored> {
        let mut count = 0u8;
        let blocks = blocks.inspect(|_| count = count.saturating_add(1));
        let stored = self.pages.put(blocks)?;
        self.blocks = self.blocks.saturating_add(count.into());
        if let Some(place) = self.put.iter_mut().find(|place| place.is_none()) {
            *place = Some((stored, count));
        }
        Some(stored)
    }

    fn begin_read(&mut self, _stored: &Stored) {}

    fn end_read(&mut self, _stored: &Stored) {}

    fn touch(&mut self, _bits: u64) {}

    fn changed_by(&self, _bits: u64) -> u64 {
        0
    }

    fn last(&self) -> u64 {
        0
    }

    fn room(&self) -> (u64, u64) {
        (self.blocks, self.blocks_max)
    }
}
