// SPDX-License-Identifier: GPL-2.0

//! The limit on the memory of all sessions, including those that are being set up.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::memory;
use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};
use rtrs_core::proto::budget;

use crate::server::module::{
    ModuleState,
    MAX_MEMORY_MIB, //
};

/// Bytes that are charged, over all listeners.
pub(crate) struct Used(AtomicU64);

impl Used {
    /// Returns a count of 0.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Charged memory; dropping it uncharges it.
pub(crate) struct Charge {
    shared: Arc<ModuleState>,
    bytes: u64,
}

impl Charge {
    /// Charges `bytes`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the limit does not allow them, or the machine cannot spare them now. A limit
    /// that was lowered meanwhile does not affect memory that is charged already.
    pub(crate) fn new(shared: &Arc<ModuleState>, bytes: u64) -> Result<Self> {
        let (available, total) = (memory::available_bytes(), memory::total_bytes());
        if !budget::is_to_spare(bytes, available, total) {
            return Err(ENOMEM);
        }
        let limit_mib = MAX_MEMORY_MIB.get();
        let charged = shared.used.0.fetch_update(Relaxed, Relaxed, |used| {
            budget::charge(used, bytes, limit_mib)
        });
        charged.map_err(|_| ENOMEM)?;
        Ok(Self {
            shared: shared.clone(),
            bytes,
        })
    }

    /// Charges `bytes` for something else; as [`Self::new`].
    pub(crate) fn another(&self, bytes: u64) -> Result<Self> {
        Self::new(&self.shared, bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.used.0.fetch_sub(self.bytes, Relaxed);
    }
}
