// SPDX-License-Identifier: GPL-2.0

//! What the connections of a mount have done.

use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering, //
};

/// Counters of a mount.
#[derive(Default)]
pub(crate) struct Stats {
    /// Requests to gfmd that were answered.
    pub(crate) gfmd_requests: AtomicU64,
    /// The time that they took, in microseconds.
    pub(crate) gfmd_us: AtomicU64,
    /// Requests to gfmd that were sent again.
    pub(crate) gfmd_retries: AtomicU64,
    /// Connections to gfmd that were made.
    pub(crate) gfmd_connects: AtomicU64,
    /// Requests to gfsds that were answered.
    pub(crate) gfsd_requests: AtomicU64,
    /// The time that they took, in microseconds.
    pub(crate) gfsd_us: AtomicU64,
    /// Files that were opened again, by another replica or after a restart.
    pub(crate) gfsd_retries: AtomicU64,
    /// Connections to gfsds that were made.
    pub(crate) gfsd_connects: AtomicU64,
    /// Bytes that gfsds have sent.
    pub(crate) gfsd_bytes: AtomicU64,
}

impl Stats {
    /// Returns all counters with their names.
    pub(crate) fn all(&self) -> [(&'static str, &AtomicU64); 9] {
        [
            ("gfmd_requests", &self.gfmd_requests),
            ("gfmd_us", &self.gfmd_us),
            ("gfmd_retries", &self.gfmd_retries),
            ("gfmd_connects", &self.gfmd_connects),
            ("gfsd_requests", &self.gfsd_requests),
            ("gfsd_us", &self.gfsd_us),
            ("gfsd_retries", &self.gfsd_retries),
            ("gfsd_connects", &self.gfsd_connects),
            ("gfsd_bytes", &self.gfsd_bytes),
        ]
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
