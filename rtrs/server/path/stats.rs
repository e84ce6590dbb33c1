// SPDX-License-Identifier: GPL-2.0

//! Statistics of one path: requests and bytes, counted per CPU.

use kernel::prelude::*;
use kernel_ext::percpu::Counts;
use rtrs_core::proto::stats::IoCounts;

/// The counts.
const READS: usize = 0;
const READ_BYTES: usize = 1;
const WRITES: usize = 2;
const WRITTEN_BYTES: usize = 3;

/// `stats/rdma` of a path.
pub(crate) struct Stats(Counts<4>);

impl Stats {
    /// Allocates the counts, which are 0.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Counts::new()?))
    }

    /// Counts one request. `bytes` are data and user message, as the C driver counts them.
    #[inline]
    pub(crate) fn count(&self, is_read: bool, bytes: u32) {
        if is_read {
            self.0.increment::<READS>();
            self.0.add::<READ_BYTES>(bytes.into());
        } else {
            self.0.increment::<WRITES>();
            self.0.add::<WRITTEN_BYTES>(bytes.into());
        }
    }

    /// Adds up the counts of all CPUs. Requests that are counted meanwhile may be missing.
    pub(crate) fn sum(&self) -> IoCounts {
        IoCounts {
            reads: self.0.sum(READS),
            read_bytes: self.0.sum(READ_BYTES),
            writes: self.0.sum(WRITES),
            written_bytes: self.0.sum(WRITTEN_BYTES),
        }
    }

    /// Resets the counts to 0.
    pub(crate) fn reset(&self) {
        self.0.reset();
    }
}
