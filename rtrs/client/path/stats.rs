// SPDX-License-Identifier: GPL-2.0

//! The statistics of a path.

use kernel::prelude::*;
use kernel_ext::percpu::{
    Counter,
    PerCpu, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use rtrs_core::proto::stats::{
    IoCounts,
    Reconnects, //
};

use crate::client::io::transfer::Direction;

/// One CPU's counts.
#[derive(Default)]
struct CpuCounts {
    reads: Counter,
    read_bytes: Counter,
    writes: Counter,
    written_bytes: Counter,
    failover: Counter,
    /// Completions that this CPU handled for another one's connection.
    migrated_to: Counter,
    /// This CPU's number; there is no cheaper way to get it.
    number: Counter,
}

/// Counts of a path; they survive its reconnects.
pub(crate) struct Stats {
    counts: PerCpu<CpuCounts>,
    /// For each CPU, completions of its connection that another one handled.
    migrated_from: KVec<AtomicU32>,
    reconnected: AtomicU32,
    reconnect_failed: AtomicU32,
}

impl Stats {
    pub(crate) fn new() -> Result<Self> {
        let counts = PerCpu::<CpuCounts>::new()?;
        let mut migrated_from = KVec::new();
        for (number, cpu) in counts.iter() {
            cpu.number.set(number.into());
            migrated_from.push(AtomicU32::new(0), GFP_KERNEL)?;
        }
        Ok(Self {
            counts,
            migrated_from,
            reconnected: AtomicU32::new(0),
            reconnect_failed: AtomicU32::new(0),
        })
    }

    /// Counts a request of `bytes`, its user message included.
    #[inline]
    pub(crate) fn count(&self, direction: Direction, bytes: u32) {
        let counts = self.counts.this_cpu();
        let (requests, total) = match direction {
            Direction::Read => (&counts.reads, &counts.read_bytes),
            Direction::Write => (&counts.writes, &counts.written_bytes),
        };
        requests.add(1);
        total.add(bytes.into());
    }

    /// Counts a completion of a connection of `cpu`, if another CPU handles it.
    #[inline]
    pub(crate) fn count_completion(&self, cpu: u32) {
        let counts = self.counts.this_cpu();
        if counts.number.get() != u64::from(cpu) {
            counts.migrated_to.add(1);
            if let Some(from) = self.migrated_from.get(cpu as usize) {
                from.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Counts a request that was taken over from a failed path.
    #[cold]
    pub(crate) fn count_failover(&self) {
        self.counts.this_cpu().failover.add(1);
    }

    /// Counts an attempt to reconnect that has ended.
    pub(crate) fn count_reconnect(&self, succeeded: bool) {
        let counter = if succeeded {
            &self.reconnected
        } else {
            &self.reconnect_failed
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds up the requests of all CPUs.
    pub(crate) fn io(&self) -> IoCounts {
        self.counts
            .iter()
            .fold(IoCounts::default(), |sum, (_, cpu)| {
                sum.plus(IoCounts {
                    reads: cpu.reads.get(),
                    read_bytes: cpu.read_bytes.get(),
                    writes: cpu.writes.get(),
                    written_bytes: cpu.written_bytes.get(),
                })
            })
    }

    /// Adds up the requests that were taken over from failed paths.
    pub(crate) fn failover(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, (_, cpu)| sum.wrapping_add(cpu.failover.get()))
    }

    /// Returns, for each possible CPU, how many completions of other CPUs' connections it handled.
    pub(crate) fn migrated_to(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().map(|(_, cpu)| cpu.migrated_to.get())
    }

    /// Returns, for each possible CPU, how many completions of its connection others handled.
    pub(crate) fn migrated_from(&self) -> impl Iterator<Item = u32> + '_ {
        self.migrated_from
            .iter()
            .map(|from| from.load(Ordering::Relaxed))
    }

    pub(crate) fn reconnects(&self) -> Reconnects {
        Reconnects {
            successful: self.reconnected.load(Ordering::Relaxed),
            failed: self.reconnect_failed.load(Ordering::Relaxed),
        }
    }

    /// Resets the request counts.
    pub(crate) fn reset_rdma(&self) {
        for (_, cpu) in self.counts.iter() {
            cpu.reads.set(0);
            cpu.read_bytes.set(0);
            cpu.writes.set(0);
            cpu.written_bytes.set(0);
            cpu.failover.set(0);
        }
    }

    /// Resets the counts of migrated completions.
    pub(crate) fn reset_migration(&self) {
        for (_, cpu) in self.counts.iter() {
            cpu.migrated_to.set(0);
        }
        for from in &self.migrated_from {
            from.store(0, Ordering::Relaxed);
        }
    }

    /// Resets the counts of reconnects.
    pub(crate) fn reset_reconnects(&self) {
        self.reconnected.store(0, Ordering::Relaxed);
        self.reconnect_failed.store(0, Ordering::Relaxed);
    }
}
