// SPDX-License-Identifier: GPL-2.0

//! IO that a log begins, as `rioc/server/log_io.rs` passes it to the block layer.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use seglog::{
    layout::SLOT_BYTES,
    superblock::SUPERBLOCK_BYTES, //
};

use crate::{
    bdev::BlockDevice,
    proto::medium::Io,
    Flags, //
};

/// The device of a log.
pub(super) struct LogIo {
    device: Arc<BlockDevice>,
    has_cache: bool,
    pub(super) in_flight: usize,
    page: KVec<u8>,
}

impl LogIo {
    /// Allocates the memory.
    pub(super) fn new(
        device: Arc<BlockDevice>,
        has_cache: bool,
        page_bytes: usize,
    ) -> Result<Self> {
        Ok(Self {
            device,
            has_cache,
            in_flight: 0,
            page: KVec::from_elem(0, page_bytes, GFP_KERNEL)?,
        })
    }

    /// Begins to write a batch.
    pub(super) fn write_batch(&mut self, sequence: u64, at: u64, column: &[u8]) {
        let flags = if self.has_cache {
            Flags::NONE
        } else {
            Flags::FUA
        };
        self.in_flight += 1;
        let io = Io::Batch(sequence);
        self.device.begin_write(io, at, column, flags);
    }

    /// Begins a flush.
    pub(super) fn flush(&mut self, io: Io) {
        self.in_flight += 1;
        self.device.begin_flush(io);
    }

    /// Returns the memory of the page that is written next.
    pub(super) fn page(&mut self) -> &mut [u8] {
        &mut self.page
    }

    /// Begins to write that page.
    pub(super) fn write_page(&mut self, at: u64) {
        self.in_flight += 1;
        let page = &self.page;
        self.device.begin_write(Io::Dump, at, page, Flags::NONE);
    }

    /// Begins to write a superblock.
    pub(super) fn write_superblock(&mut self, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        let mut slot = bytes.to_vec();
        slot.resize(SLOT_BYTES as usize, 0);
        self.in_flight += 1;
        self.device.begin_write(Io::Dump, at, &slot, Flags::FUA);
    }
}
