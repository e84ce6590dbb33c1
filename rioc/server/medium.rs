// SPDX-License-Identifier: GPL-2.0

//! The media of stores, as an engine sees them, and the actions that a store begins.

use kernel::prelude::*;
use seglog::superblock::SUPERBLOCK_BYTES;

use super::{
    log_io::LogIo,
    memory::{
        RamPages,
        Tables,
        REQUESTS_MAX, //
    },
    one_device::OneDevice, //
};
use crate::proto::{
    medium::{
        Actions,
        Io,
        Medium,
        Ram, //
    },
    slot::Stored,
    store::{
        Block,
        Store, //
    },
};

/// A medium whose blocks are copied out.
pub(super) trait Kept: Medium + Send + Sized + 'static {
    /// Whether what is acknowledged is durable.
    const IS_DURABLE: bool;

    /// Returns the batch up to which all are durable.
    fn durable_up_to(&self) -> u64;

    /// Copies a block out and returns its CRC; `None` if it is on the device only.
    ///
    /// # Errors
    ///
    /// `EIO` if there is no such block.
    fn copy_block(&self, stored: &Stored, block: u8, to: &mut Block) -> Result<Option<u32>>;

    /// Does what follows by itself.
    fn settle(_store: &mut Store<Tables, Self>, _acting: &mut Acting) {}

    /// Whether its device has failed.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Whether nothing is left that is to be made durable.
    fn is_quiet(&self) -> bool {
        true
    }

    /// An IO has ended.
    fn ended(&mut self, _io: Io, _is_well: bool) {}

    /// Whether room is to be made by collecting.
    fn is_low(&mut self) -> bool {
        false
    }

    /// The segment that is collected.
    type Victim: Send + Unpin;

    /// Begins to collect a segment.
    fn begin_collecting(&mut self) -> Option<Self::Victim> {
        None
    }

    /// Reads the next batch of it, without the lock; returns whether there is one.
    fn load(_victim: &mut Self::Victim, _device: &mut OneDevice, _column: &mut [u8]) -> bool {
        false
    }

    /// Moves what is used of that batch; returns whether that was all.
    fn collect(
        _store: &mut Store<Tables, Self>,
        _from: (&mut Self::Victim, &[u8]),
        _acting: &mut Acting,
    ) -> bool {
        true
    }

    /// The segment was collected.
    fn end_collecting(&mut self, _victim: &Self::Victim) {}
}

impl Kept for Ram<RamPages> {
    const IS_DURABLE: bool = false;
    type Victim = ();

    fn durable_up_to(&self) -> u64 {
        0
    }

    fn copy_block(&self, stored: &Stored, block: u8, to: &mut Block) -> Result<Option<u32>> {
        self.pages.get(stored, block, to).map(Some)
    }
}

/// Requests in an order: there is room for all. None is in it twice.
struct Ring {
    tags: KVVec<u32>,
    first: usize,
    count: usize,
}

impl Ring {
    /// Allocates the memory. Sleeps.
    fn new() -> Result<Self> {
        Ok(Self {
            tags: KVVec::from_elem(0, REQUESTS_MAX, GFP_KERNEL)?,
            first: 0,
            count: 0,
        })
    }

    fn set(&mut self, at: usize, tag: u32) {
        if let Some(place) = self.tags.get_mut(at % REQUESTS_MAX) {
            *place = tag;
            self.count = self.count.saturating_add(1);
        }
    }

    fn push(&mut self, tag: u32) {
        self.set(self.first.saturating_add(self.count), tag);
    }

    fn push_first(&mut self, tag: u32) {
        self.first = self.first.checked_sub(1).unwrap_or(REQUESTS_MAX - 1);
        self.set(self.first, tag);
    }

    fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        let tag = self.tags.get(self.first).copied();
        self.first = self.first.saturating_add(1) % REQUESTS_MAX;
        tag
    }
}

/// Actions that a store has begun.
pub(super) struct Acting {
    /// The requests that take a step.
    ready: Ring,
    /// The requests that need files.
    files: Ring,
    /// The device of a log.
    pub(super) log: Option<LogIo>,
}

impl Acting {
    /// Allocates the memory. Sleeps.
    pub(super) fn new(log: Option<LogIo>) -> Result<Self> {
        Ok(Self {
            ready: Ring::new()?,
            files: Ring::new()?,
            log,
        })
    }

    /// A request takes its next step soon. None is here twice.
    pub(super) fn run(&mut self, tag: u32) {
        self.ready.push(tag);
    }

    /// Takes the request that is next.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.ready.pop()
    }

    /// A request needs files: as the next one, or behind the others.
    pub(super) fn need_files(&mut self, tag: u32, is_next: bool) {
        match is_next {
            true => self.files.push_first(tag),
            false => self.files.push(tag),
        }
    }

    /// Takes the request that needs files next.
    pub(super) fn next_file(&mut self) -> Option<u32> {
        self.files.pop()
    }

    /// Whether no request needs files.
    pub(super) const fn has_no_files(&self) -> bool {
        self.files.count == 0
    }
}

impl Actions for Acting {
    fn begins(&mut self, tag: u32) {
        self.run(tag);
    }

    // A store in memory begins no IO.
    fn write_batch(&mut self, sequence: u64, at: u64, column: &[u8]) {
        if let Some(log) = &mut self.log {
            log.write_batch(sequence, at, column);
        }
    }

    fn flush(&mut self, io: Io) {
        if let Some(log) = &mut self.log {
            log.flush(io);
        }
    }

    fn page(&mut self) -> &mut [u8] {
        self.log.as_mut().map_or(&mut [], LogIo::page)
    }

    fn write_page(&mut self, at: u64) {
        if let Some(log) = &mut self.log {
            log.write_page(at);
        }
    }

    fn write_superblock(&mut self, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        if let Some(log) = &mut self.log {
            log.write_superblock(at, bytes);
        }
    }
}
