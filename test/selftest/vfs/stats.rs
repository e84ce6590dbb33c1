// SPDX-License-Identifier: GPL-2.0

//! Counts of what a mount has done, in `/proc/fs/ferrotest/ID/state`.

use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};
use vfs_ext::proc::Show;

/// Counters of a mount.
#[derive(Default)]
pub(crate) struct Stats {
    /// Inodes that exist.
    pub(crate) inodes: AtomicU64,
    /// Names that were looked up.
    pub(crate) lookups: AtomicU64,
    /// Names that were looked up again.
    pub(crate) revalidations: AtomicU64,
    /// Attributes that had to be fresh.
    pub(crate) refreshes: AtomicU64,
    /// Files that were opened.
    pub(crate) opens: AtomicU64,
    /// Subrequests, and those among them that were retries.
    pub(crate) reads: AtomicU64,
    /// See `reads`.
    pub(crate) retries: AtomicU64,
    /// Bytes that were read.
    pub(crate) bytes: AtomicU64,
    /// Subrequests that are not answered yet.
    pub(crate) pending: AtomicU64,
    /// Cached pages that were looked at, and those among them that were not as they should be.
    pub(crate) cached: AtomicU64,
    /// See `cached`.
    pub(crate) wrong: AtomicU64,
    /// The bytes of the key of the mount.
    pub(crate) secret_bytes: AtomicU64,
}

impl Show for Stats {
    fn show(&self, file: &SeqFile) -> Result {
        for (name, counter) in [
            ("inodes", &self.inodes),
            ("lookups", &self.lookups),
            ("revalidations", &self.revalidations),
            ("refreshes", &self.refreshes),
            ("opens", &self.opens),
            ("reads", &self.reads),
            ("retries", &self.retries),
            ("bytes", &self.bytes),
            ("pending", &self.pending),
            ("cached", &self.cached),
            ("wrong", &self.wrong),
            ("secret_bytes", &self.secret_bytes),
        ] {
            seq_print!(file, "{} {}\n", name, counter.load(Relaxed));
        }
        Ok(())
    }
}

/// The data of an inode, which counts inodes.
pub(crate) struct Counted {
    stats: Arc<Stats>,
}

impl Counted {
    /// Counts a new inode.
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        stats.inodes.fetch_add(1, Relaxed);
        Self { stats }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stats.inodes.fetch_sub(1, Relaxed);
    }
}
