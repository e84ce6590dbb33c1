// SPDX-License-Identifier: GPL-2.0

//! The statistics of a path.

use kernel::prelude::*;
use kernel_ext::percpu::{
    Counter,
    Counts,
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

/// The counts of `stats/rdma`.
const READS: usize = 0;
const READ_BYTES: usize = 1;
const WRITES: usize = 2;
const WRITTEN_BYTES: usize = 3;
const FAILOVER: usize = 4;

/// A CPU whose connection has completions.
#[derive(Default)]
struct Cpu {
    /// Its number; there is no cheaper way to get it.
    number: Counter,
    /// Completions of its connection that another CPU handled.
    migrated_from: Counter,
}

/// Counts of a path; they survive its reconnects.
pub(crate) struct Stats {
    rdma: Counts<5>,
    cpus: PerCpu<Cpu>,
    /// Completions that a CPU handled for another one's connection.
    migrated_to: Counts<1>,
    reconnected: AtomicU32,
    reconnect_failed: AtomicU32,
}

impl Stats {
    pub(crate) fn new() -> Result<Self> {
        let cpus = PerCpu::<Cpu>::new()?;
        for (number, cpu) in cpus.iter() {
            cpu.number.set(number.into());
        }
        Ok(Self {
            rdma: Counts::new()?,
            cpus,
            migrated_to: Counts::new()?,
            reconnected: AtomicU32::new(0),
            reconnect_failed: AtomicU32::new(0),
        })
    }

    /// Counts a request of `bytes`, its user message included.
    #[inline]
    pub(crate) fn count(&self, direction: Direction, bytes: u32) {
        match direction {
            Direction::Read => {
                self.rdma.increment::<READS>();
                self.rdma.add::<READ_BYTES>(bytes.into());
            }
            Direction::Write => {
                self.rdma.increment::<WRITES>();
                self.rdma.add::<WRITTEN_BYTES>(bytes.into());
            }
        }
    }

    /// Counts a completion of a connection of `cpu`, if another CPU handles it.
    #[inline]
    pub(crate) fn count_completion(&self, cpu: u32) {
        if self.cpus.this_cpu().number.get() != u64::from(cpu) {
            self.count_migrated(cpu);
        }
    }

    /// Counts a completion of a connection of `cpu` that this CPU handles instead.
    fn count_migrated(&self, cpu: u32) {
        self.migrated_to.increment::<0>();
        if let Some(from) = self.cpus.of_cpu(cpu) {
            from.migrated_from.add(1);
        }
    }

    /// Counts a request that was taken over from a failed path.
    #[cold]
    pub(crate) fn count_failover(&self) {
        self.rdma.increment::<FAILOVER>();
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
        IoCounts {
            reads: self.rdma.sum(READS),
            read_bytes: self.rdma.sum(READ_BYTES),
            writes: self.rdma.sum(WRITES),
            written_bytes: self.rdma.sum(WRITTEN_BYTES),
        }
    }

    /// Adds up the requests that were taken over from failed paths.
    pub(crate) fn failover(&self) -> u64 {
        self.rdma.sum(FAILOVER)
    }

    /// Returns, for each possible CPU, how many completions of other CPUs' connections it handled.
    pub(crate) fn migrated_to(&self) -> impl Iterator<Item = u64> + '_ {
        self.migrated_to.of_cpus(0).map(|(_, count)| count)
    }

    /// Returns, for each possible CPU, how many completions of its connection others handled.
    pub(crate) fn migrated_from(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus.iter().map(|(_, cpu)| cpu.migrated_from.get())
    }

    pub(crate) fn reconnects(&self) -> Reconnects {
        Reconnects {
            successful: self.reconnected.load(Ordering::Relaxed),
            failed: self.reconnect_failed.load(Ordering::Relaxed),
        }
    }

    /// Resets the request counts.
    pub(crate) fn reset_rdma(&self) {
        self.rdma.reset();
    }

    /// Resets the counts of migrated completions.
    pub(crate) fn reset_migration(&self) {
        self.migrated_to.reset();
        for (_, cpu) in self.cpus.iter() {
            cpu.migrated_from.set(0);
        }
    }

    /// Resets the counts of reconnects.
    pub(crate) fn reset_reconnects(&self) {
        self.reconnected.store(0, Ordering::Relaxed);
        self.reconnect_failed.store(0, Ordering::Relaxed);
    }
}
