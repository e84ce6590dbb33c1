// SPDX-License-Identifier: GPL-2.0

//! Statistics of one path: requests and bytes, counted per CPU.

use kernel::prelude::*;
use kernel_ext::percpu::{
    Counter,
    PerCpu, //
};
use rtrs_core::proto::stats::IoCounts;

/// The counts of one CPU.
#[derive(Default)]
struct Counters {
    reads: Counter,
    read_bytes: Counter,
    writes: Counter,
    written_bytes: Counter,
}

/// `stats/rdma` of a path.
pub(crate) struct Stats(PerCpu<Counters>);

impl Stats {
    /// Allocates the counts, which are 0.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new()?))
    }

    /// Counts one request. `bytes` are data and user message, as the C driver counts them.
    #[inline]
    pub(crate) fn count(&self, is_read: bool, bytes: u32) {
        let counters = self.0.this_cpu();
        let (requests, total) = if is_read {
            (&counters.reads, &counters.read_bytes)
        } else {
            (&counters.writes, &counters.written_bytes)
        };
        requests.add(1);
        total.add(u64::from(bytes));
    }

    /// Adds up the counts of all CPUs. Requests that are counted meanwhile may be missing.
    pub(crate) fn sum(&self) -> IoCounts {
        self.0
            .iter()
            .fold(IoCounts::default(), |sum, (_, counters)| {
                sum.plus(IoCounts {
                    reads: counters.reads.get(),
                    read_bytes: counters.read_bytes.get(),
                    writes: counters.writes.get(),
                    written_bytes: counters.written_bytes.get(),
                })
            })
    }

    /// Resets the counts to 0.
    pub(crate) fn reset(&self) {
        for (_, counters) in self.0.iter() {
            counters.reads.set(0);
            counters.read_bytes.set(0);
            counters.writes.set(0);
            counters.written_bytes.set(0);
        }
    }
}
