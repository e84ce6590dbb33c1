// SPDX-License-Identifier: GPL-2.0

//! Whether a device's requests can be sent, and with which number.

use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

use crate::proto::io_state::IoState;

/// An [`IoState`] that is read for each request. Any context.
pub(super) struct IoStateCell(AtomicU64);

impl IoStateCell {
    /// Returns the state of a device that is not open yet.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(IoState::Failing.to_word()))
    }

    /// Returns how requests are sent.
    #[inline]
    pub(super) fn get(&self) -> IoState {
        IoState::from_word(self.0.load(Relaxed))
    }

    /// Changes how requests are sent.
    pub(super) fn set(&self, io_state: IoState) {
        self.0.store(io_state.to_word(), Relaxed);
    }

    /// Changes how requests are sent, if it is still `from`; returns whether it was.
    pub(super) fn change(&self, from: IoState, to: IoState) -> bool {
        self.0
            .compare_exchange(from.to_word(), to.to_word(), Relaxed, Relaxed)
            .is_ok()
    }
}
