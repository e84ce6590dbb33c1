// SPDX-License-Identifier: GPL-2.0

//! The disk of the server: durable over crashes, with variable latency.

use crate::event::MS;

/// Durable blocks. A block holds the number of the request that wrote it, 0 at first.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) blocks: Vec<u64>,
    /// Operations are slow now.
    pub(crate) slow: bool,
}

/// Longest time that an operation can take, in microseconds.
pub(crate) const OPERATION_US_MAX: u64 = 12_000 * MS;

impl Disk {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            blocks: vec![0; blocks],
            slow: false,
        }
    }

    /// How long the next operation takes, in microseconds.
    pub(crate) fn delay_us(&self, rng: &mut fastrand::Rng) -> u64 {
        match rng.u32(0..100) {
            0..30 if self.slow => rng.u64(MS..OPERATION_US_MAX),
            0 => rng.u64(10 * MS..2_000 * MS),
            _ => rng.u64(200..20 * MS),
        }
    }
}
