// SPDX-License-Identifier: GPL-2.0

//! The number of paths that carry a request in a chunk, which the paths of a session share.

use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering::SeqCst, //
};
use rtrs_core::proto::fence::Carriers;

/// The [`Carriers`] of a chunk. The paths of all CPUs write it, so it is on a line of its own. Each
/// operation is a full barrier.
#[repr(align(64))]
pub(crate) struct ChunkCarriers(AtomicU32);

impl ChunkCarriers {
    /// Returns those of a chunk that no path uses.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Adds a path; returns the carriers before.
    #[inline(always)]
    pub(super) fn add(&self) -> Carriers {
        Carriers::before(self.0.fetch_add(Carriers::ONE, SeqCst))
    }

    /// Takes a path off.
    #[inline(always)]
    pub(super) fn take_off(&self) {
        self.0.fetch_sub(Carriers::ONE, SeqCst);
    }

    /// Begins to doubt whether all requests in the chunk are counted.
    pub(crate) fn doubt(&self) {
        self.0.fetch_or(Carriers::DOUBT, SeqCst);
    }

    /// Ends the doubt: each request in the chunk is counted.
    pub(crate) fn trust(&self) {
        self.0.fetch_and(!Carriers::DOUBT, SeqCst);
    }
}
