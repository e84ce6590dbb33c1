// SPDX-License-Identifier: GPL-2.0

//! Counts of which each CPU has its own: one that another CPU adds to it sees later, as with the
//! instruction that does not lock.

use crate::{
    cpu::{self, CPUS},
    prelude::Result,
};
use loom::sync::atomic::{AtomicU32, Ordering};
use std::array;

/// The counts of `kernel_ext::percpu`, with an atomic for each CPU of the model.
pub struct Counts<const N: usize>([[AtomicU32; N]; CPUS]);

impl<const N: usize> Counts<N> {
    /// Makes counts that are 0.
    pub fn new() -> Result<Self> {
        let counts = |_| array::from_fn(|_| AtomicU32::new(0));
        Ok(Self(array::from_fn(counts)))
    }

    /// Adds 1; an interrupt may come behind it.
    pub fn increment<const I: usize>(&self) {
        let count = &self.0[cpu::this()][I];
        let next = count.load(Ordering::Relaxed) + 1;
        // Stores of a CPU are seen in order.
        count.store(next, Ordering::Release);
        cpu::look();
    }

    /// Returns the sum of a count over all CPUs, which are read one after the other.
    pub fn sum(&self, index: usize) -> u32 {
        let counts = self.0.iter().map(|cpu| cpu[index].load(Ordering::Acquire));
        counts.sum()
    }
}
