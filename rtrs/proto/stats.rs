// SPDX-License-Identifier: GPL-2.0

//! The texts of the statistics in sysfs, without the newline.

use core::fmt;

/// IO counted since the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IoCounts {
    /// The number of read requests.
    pub reads: u64,
    /// The number of data bytes read.
    pub read_bytes: u64,
    /// The number of write requests.
    pub writes: u64,
    /// The number of data bytes written.
    pub written_bytes: u64,
}

/// `stats/rdma` of a server's path: `rcnt rbytes wcnt wbytes`.
impl fmt::Display for IoCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.reads, self.read_bytes, self.writes, self.written_bytes
        )
    }
}

/// `stats/rdma` of a client's path: `rcnt rbytes wcnt wbytes inflight failover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClientRdma {
    /// The counts since the last reset.
    pub counts: IoCounts,
    /// The number of requests in flight, which a reset does not change (D19).
    pub inflight: u32,
    /// The number of requests failed over from other paths, since the last reset.
    pub failover: u64,
}

impl fmt::Display for ClientRdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.counts, self.inflight, self.failover)
    }
}

/// `stats/reconnects`: `succ fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reconnects {
    /// The number of successful reconnects.
    pub successful: u32,
    /// The number of failed reconnects.
    pub failed: u32,
}

impl fmt::Display for Reconnects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.successful, self.failed)
    }
}

/// `cur_latency`: `N ns`; 0 before the first heartbeat was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency(pub Option<u64>);

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0.unwrap_or(0))
    }
}
