// SPDX-License-Identifier: GPL-2.0

//! The media of stores, as an engine sees them, and the actions that a store begins.

use kernel::prelude::*;
use seglog::superblock::SUPERBLOCK_BYTES;

use super::memory::{
    RamPages,
    Tables,
    REQUESTS_MAX, //
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
}

impl Kept for Ram<RamPages> {
    const IS_DURABLE: bool = false;

    fn durable_up_to(&self) -> u64 {
        0
    }

    fn copy_block(&self, stored: &Stored, block: u8, to: &mut Block) -> Result<Option<u32>> {
        self.pages.get(stored, block, to).map(Some)
    }
}

/// Actions that a store has begun.
pub(super) struct Acting {
    /// The requests that take a step: a ring.
    ready: KVVec<u32>,
    first: usize,
    count: usize,
}

impl Acting {
    /// Allocates the memory. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            ready: KVVec::from_elem(0, REQUESTS_MAX, GFP_KERNEL)?,
            first: 0,
            count: 0,
        })
    }

    /// A request takes its next step soon. None is here twice.
    pub(super) fn run(&mut self, tag: u32) {
        let at = self.first.saturating_add(self.count) % REQUESTS_MAX;
        if let Some(place) = self.ready.get_mut(at) {
            *place = tag;
            self.count = self.count.saturating_add(1);
        }
    }

    /// Takes the request that is next.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        let tag = self.ready.get(self.first).copied();
        self.first = self.first.saturating_add(1) % REQUESTS_MAX;
        tag
    }
}

impl Actions for Acting {
    fn begins(&mut self, tag: u32) {
        self.run(tag);
    }

    // A store in memory begins no IO.
    fn write_batch(&mut self, _sequence: u64, _at: u64, _column: &[u8]) {}

    fn flush(&mut self, _io: Io) {}

    fn page(&mut self) -> &mut [u8] {
        &mut []
    }

    fn write_page(&mut self, _at: u64) {}

    fn write_superblock(&mut self, _at: u64, _bytes: &[u8; SUPERBLOCK_BYTES]) {}
}
