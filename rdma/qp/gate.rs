// SPDX-License-Identifier: GPL-2.0

//! The gate of a queue pair: contexts that post pass it, until the queue pair is closed.

use kernel::time::{
    delay::fsleep,
    Delta, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering, //
};

/// The bit that says that the gate is closed; the others count the contexts that are posting.
const CLOSED: u32 = 1 << 31;

/// The time between two looks of a closing context at the contexts that are posting.
const POST_TIME: Delta = Delta::from_micros(20);

/// Counts the contexts that are posting, and refuses new ones once it is closed.
///
/// One atomic word holds both, so that of a closing and a posting context one sees the other: a
/// post either is refused, or is over when [`close`](Self::close) returns.
pub(super) struct Gate(AtomicU32);

/// Permits one post; the gate is not closed while it exists.
pub(super) struct Pass<'a>(&'a Gate);

impl Gate {
    /// Returns an open gate.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Permits the caller to post; [`None`] if the gate is closed. Any context.
    #[inline(always)]
    pub(super) fn pass(&self) -> Option<Pass<'_>> {
        // There are far fewer than 2^31 contexts.
        let before = self.0.fetch_add(1, Ordering::Acquire);
        let pass = Pass(self);
        if before & CLOSED != 0 {
            return None;
        }
        Some(pass)
    }

    /// Closes the gate, and waits for the contexts that are posting. Sleeps.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) & !CLOSED != 0 {
            fsleep(POST_TIME);
        }
    }

    /// Opens the gate of a queue pair that was closed and has been started again. Any context.
    pub(super) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }
}

impl Drop for Pass<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Release);
    }
}
