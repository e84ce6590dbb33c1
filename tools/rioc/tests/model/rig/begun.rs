// SPDX-License-Identifier: GPL-2.0

//! The IO that a store begins.

use super::*;

/// Operations that a store begins.
pub(crate) struct Begun {
    pub(crate) disk: Disk,
    page: Vec<u8>,
    pub(super) begins: VecDeque<u32>,
    pub(super) has_cache: bool,
}

impl Begun {
    pub(crate) fn new(disk: Disk, has_cache: bool) -> Self {
        Self {
            disk,
            page: vec![0; PAGE_BYTES],
            begins: VecDeque::new(),
            has_cache,
        }
    }
}

impl Actions for Begun {
    fn begins(&mut self, tag: u32) {
        self.begins.push_back(tag);
    }

    fn write_batch(&mut self, sequence: u64, at: u64, column: &[u8]) {
        // Nothing of what the memory had before is in it.
        let body = &column[HEAD_BYTES..];
        let field = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap()) as usize;
        let end = field(4) + field(8) * body::ASSIGNMENT_BYTES;
        assert!(body[end..].iter().all(|byte| *byte == 0));
        let io = Io::Batch(sequence);
        self.disk.begin(io, at, column, !self.has_cache);
    }

    fn flush(&mut self, io: Io) {
        self.disk.begin_flush(io);
    }

    fn page(&mut self) -> &mut [u8] {
        &mut self.page
    }

    fn write_page(&mut self, at: u64) {
        self.disk.begin(Io::Dump, at, &self.page, false);
    }

    fn write_superblock(&mut self, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        self.disk.begin(Io::Dump, at, bytes, true);
    }
}
