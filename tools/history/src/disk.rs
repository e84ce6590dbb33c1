// SPDX-License-Identifier: GPL-2.0

//! The disk that is loaded and checked: a block device or a file.

use std::{
    fs::{
        File,
        OpenOptions, //
    },
    io,
    os::unix::fs::{
        FileExt,
        OpenOptionsExt, //
    },
    path::Path, //
};

/// `O_DIRECT` of x86.
const DIRECT: i32 = 0o40000;
const ALIGNMENT: usize = 4096;

/// A disk of sectors that many threads read and write at once; tests have one in memory.
pub(crate) trait Disk: Sync {
    /// Fills `into` from the byte `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `from`; what is acknowledged may still be in a volatile cache.
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()>;
    /// Makes durable what was acknowledged before the call.
    fn flush(&self) -> io::Result<()>;
}

/// A block device or a file, past the page cache.
pub(crate) struct Device(File);

impl Device {
    /// Opens it; `buffered` goes through the page cache, for files on a file system that cannot do
    /// without.
    pub(crate) fn open(path: &Path, buffered: bool) -> io::Result<Self> {
        let flags = if buffered { 0 } else { DIRECT };
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
            .map(Self)
    }
}

impl Disk for Device {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.0.write_all_at(from, at)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Memory at an address that direct IO takes.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffer {
    /// Zeroes.
    pub(crate) fn new(size: usize) -> Self {
        let memory = vec![0; size + ALIGNMENT];
        // A vector that is never resized does not move.
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self {
            memory,
            start,
            size,
        }
    }

    /// Its first bytes; all of them when it has less than `size`.
    pub(crate) fn first(&mut self, size: usize) -> &mut [u8] {
        let end = self.start + size.min(self.size);
        self.memory.get_mut(self.start..end).unwrap_or_default()
    }
}
