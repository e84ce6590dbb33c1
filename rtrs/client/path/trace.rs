// SPDX-License-Identifier: GPL-2.0

//! A record of a path's recovery in the kernel log. `tools/replay` replays it through
//! `proto::recovery` and compares what was decided with what the driver did.
//!
//! ```text
//! rtrs_client: path 1a2b3c4d 12 did 1 64
//! ```
//!
//! The number of the path, that of the line, and an [`Entry`]. A decision and its line are under
//! the lock of [`Path::recovery`], so the numbers of the lines have the order of the decisions.
//!
//! [`Path::recovery`]: crate::client::path::Path::recovery

use kernel::{
    print::format_strings,
    print_macro, //
};
use kernel_ext::{
    module_param_ranged,
    sync::atomic::{
        AtomicU32,
        Ordering, //
    },
};
use rtrs_core::proto::recovery::{
    record::{
        Entry,
        Operation,
        Step, //
    },
    Effects,
    Event,
    Recovery,
    TearDown, //
};

module_param_ranged!(
    TRACE_PATHS: 0, 1,
    "trace_paths",
    0,
    "Log each step of the recovery of paths at the debug level, 0 or 1 (default: 0)"
);

/// The record of one path.
pub(crate) struct Trace {
    path: u32,
    next: AtomicU32,
}

impl Trace {
    /// Creates the record of the path with this number, which is random.
    pub(crate) fn new(path: u32) -> Self {
        Self {
            path,
            next: AtomicU32::new(0),
        }
    }

    fn record(&self, entry: Entry) {
        // Lines are counted also while they are not logged: the replay sees what it lacks.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if TRACE_PATHS.get() != 0 {
            // `pr_debug!` of 7.2 does nothing in a kernel without debug assertions.
            print_macro!(
                format_strings::DEBUG,
                false,
                "path {:08x} {number} {entry}\n",
                self.path
            );
        }
    }

    /// Records a decision; the caller holds the lock of `after`.
    pub(crate) fn step(&self, event: &Event, effects: &Effects, after: &Recovery) {
        self.record(Entry::Step(Step::new(event, effects, after)));
    }

    /// Records that the teardown worker runs; the caller holds the lock of the path's recovery.
    pub(crate) fn ran(&self, run: Option<TearDown>) {
        self.record(Entry::Ran(run));
    }

    /// Records what the driver is about to do.
    pub(crate) fn did(&self, operation: Operation) {
        self.record(Entry::Did(operation));
    }
}
