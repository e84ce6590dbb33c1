// SPDX-License-Identifier: GPL-2.0

//! The limit on what all sessions take together, those that are being set up included.

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
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Some memory that somebody was granted; dropping it gives it back.
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
    /// that was lowered meanwhile takes nothing away from those who have it.
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
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.used.0.fetch_sub(self.bytes, Relaxed);
    }
}
