// SPDX-License-Identifier: GPL-2.0

//! Counts and measurements of a run.

use std::time::Duration;

use serde::Serialize;

/// The work that a worker of the service has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Core {
    /// The number of the core.
    pub core: usize,
    /// Requests of the initiator that ended well.
    pub operations: u64,
    /// Blocks of which a half was rebuilt.
    pub recoveries: u64,
    /// Requests to the targets.
    pub target_operations: u64,
}

/// The measurements of a thread of the initiator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    operations: u64,
    bytes: u64,
    busy: Duration,
    least: Option<Duration>,
    most: Duration,
}

/// The measurements of the initiator.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Initiator {
    /// The time from the first request to the last answer.
    pub duration_s: f64,
    /// Requests that ended well.
    pub operations: u64,
    /// GiB of data a second.
    pub data_rate_gib_s: f64,
    /// Millions of requests a second.
    pub io_rate_miops: f64,
    /// Time of the quickest request.
    pub latency_min_us: f64,
    /// Time of the slowest.
    pub latency_max_us: f64,
    /// The mean.
    pub latency_mean_us: f64,
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn share(value: f64, of: f64) -> f64 {
    if of > 0.0 {
        value / of
    } else {
        0.0
    }
}

impl Thread {
    /// Counts a request.
    pub fn count(&mut self, bytes: u32, took: Duration) {
        self.operations += 1;
        self.bytes += u64::from(bytes);
        self.busy += took;
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        self.most = self.most.max(took);
    }
}

impl Initiator {
    /// Adds up what the threads have measured in `duration`.
    pub fn of(threads: &[Thread], duration: Duration) -> Self {
        let operations = threads.iter().map(|thread| thread.operations).sum::<u64>();
        let bytes = threads.iter().map(|thread| thread.bytes).sum::<u64>();
        let busy = threads.iter().map(|thread| thread.busy).sum();
        let least = threads.iter().filter_map(|thread| thread.least).min();
        let most = threads.iter().map(|thread| thread.most).max();
        let duration_s = duration.as_secs_f64();
        Self {
            duration_s,
            operations,
            data_rate_gib_s: share(bytes as f64 / f64::from(1 << 30), duration_s),
            io_rate_miops: share(operations as f64 / 1e6, duration_s),
            latency_min_us: micros(least.unwrap_or_default()),
            latency_max_us: micros(most.unwrap_or_default()),
            latency_mean_us: share(micros(busy), operations as f64),
        }
    }
}
