// SPDX-License-Identifier: GPL-2.0

//! The disks of the server: with variable latency, durable over crashes of the server's software,
//! and some with a cache that a power failure empties.

use crate::event::MS;

/// The content of a block, with the number of the disk's write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    content: u64,
    write: u64,
}

/// The disks. A block holds the number of the request that wrote it, 0 at first; block `b` is on
/// disk `b % volatile.len()`.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The content that a power failure leaves.
    durable: Vec<Content>,
    /// The content that is written, and only in the cache.
    cached: Vec<Option<Content>>,
    /// Writes so far.
    writes: u64,
    /// The disks that have a volatile cache.
    pub(crate) volatile: Vec<bool>,
    /// Operations are slow now.
    pub(crate) slow: bool,
}

/// Longest time that an operation can take, in microseconds.
pub(crate) const OPERATION_US_MAX: u64 = 12_000 * MS;

impl Disk {
    pub(crate) fn new(blocks: usize, volatile: Vec<bool>) -> Self {
        Self {
            durable: vec![Content::default(); blocks],
            cached: vec![None; blocks],
            writes: 0,
            volatile,
            slow: false,
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.durable.len()
    }

    /// The content that a read returns.
    pub(crate) fn content(&self, block: usize) -> u64 {
        self.cached[block].unwrap_or(self.durable[block]).content
    }

    /// Writes a block; a forced write is durable.
    pub(crate) fn write(&mut self, block: usize, content: u64, fua: bool) {
        self.writes += 1;
        let content = Content {
            content,
            write: self.writes,
        };
        if fua || !self.volatile[block % self.volatile.len()] {
            (self.durable[block], self.cached[block]) = (content, None);
        } else {
            self.cached[block] = Some(content);
        }
    }

    /// Returns the content of a disk's cache: a flush that begins now covers it.
    pub(crate) fn dirty(&self, device: usize) -> Vec<(usize, Content)> {
        let of_device = self.cached.iter().enumerate();
        of_device
            .filter(|(block, _)| block % self.volatile.len() == device)
            .filter_map(|(block, cached)| cached.map(|content| (block, content)))
            .collect()
    }

    /// Makes durable what a flush covers.
    pub(crate) fn flush(&mut self, covered: &[(usize, Content)]) {
        for (block, content) in covered {
            if self.cached[*block] == Some(*content) {
                self.cached[*block] = None;
            }
            // A later write may have been forced to the medium meanwhile.
            let durable = &mut self.durable[*block];
            if durable.write < content.write {
                *durable = *content;
            }
        }
    }

    /// Loses the caches; what the disks have written back by themselves stays.
    pub(crate) fn lose_power(&mut self, rng: &mut fastrand::Rng) {
        for (cached, durable) in self.cached.iter_mut().zip(&mut self.durable) {
            if let Some(content) = cached.take().filter(|_| rng.bool()) {
                *durable = content;
            }
        }
    }

    /// Draws the time that the next operation takes, in microseconds.
    pub(crate) fn delay_us(&self, rng: &mut fastrand::Rng) -> u64 {
        match rng.u32(0..100) {
            0..30 if self.slow => rng.u64(MS..OPERATION_US_MAX),
            0 => rng.u64(10 * MS..2_000 * MS),
            _ => rng.u64(200..20 * MS),
        }
    }
}
