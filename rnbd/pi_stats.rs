// SPDX-License-Identifier: GPL-2.0

//! Counts of a device's protection information at one end: the file `pi_stats`, on both ends.

use core::fmt::{
    self,
    Display, //
};

use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

use crate::proto::pi::{
    Geometry,
    Series, //
};

/// Counts of one device, as this end sees them. Any context.
pub(crate) struct PiStats {
    geometry: Geometry,
    /// Intervals of writes with a tuple: sent at the client, verified at the server.
    pub(crate) written: AtomicU64,
    /// Intervals of reads whose tuples were right, or were made here.
    pub(crate) read: AtomicU64,
    /// Intervals with an escape instead of a tuple.
    pub(crate) not_protected: AtomicU64,
    /// Writes that were refused.
    pub(crate) write_errors: AtomicU64,
    /// Reads in which something was wrong.
    pub(crate) read_errors: AtomicU64,
}

impl PiStats {
    /// Begins to count for a device with `geometry`.
    pub(crate) const fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            not_protected: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
        }
    }

    /// Returns what the tuples are like.
    pub(crate) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Counts the intervals of `len_bytes` of data of a read or a write, whose tuples were made
    /// here, or are the user's.
    pub(crate) fn count_made(&self, is_read: bool, len_bytes: u32) {
        self.count(is_read, self.geometry.intervals(len_bytes).into());
    }

    /// Counts the intervals of a read or a write that were verified.
    pub(crate) fn count_verified(&self, is_read: bool, verified: &Series) {
        self.count(is_read, verified.right());
        // Most often there are none.
        if verified.not_protected() != 0 {
            self.not_protected
                .fetch_add(verified.not_protected(), Relaxed);
        }
    }

    fn count(&self, is_read: bool, right: u64) {
        let counter = match is_read {
            true => &self.read,
            false => &self.written,
        };
        counter.fetch_add(right, Relaxed);
    }

    /// Counts a read or a write in which something was wrong.
    pub(crate) fn count_error(&self, is_read: bool) {
        let counter = match is_read {
            true => &self.read_errors,
            false => &self.write_errors,
        };
        counter.fetch_add(1, Relaxed);
    }
}

impl Display for PiStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mode {}", self.geometry.mode())?;
        writeln!(f, "format {}", self.geometry.format())?;
        writeln!(f, "interval_bytes {}", self.geometry.interval_bytes())?;
        writeln!(f, "written {}", self.written.load(Relaxed))?;
        writeln!(f, "read {}", self.read.load(Relaxed))?;
        writeln!(f, "not_protected {}", self.not_protected.load(Relaxed))?;
        writeln!(f, "write_errors {}", self.write_errors.load(Relaxed))?;
        writeln!(f, "read_errors {}", self.read_errors.load(Relaxed))
    }
}
