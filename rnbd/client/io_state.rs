// SPDX-License-Identifier: GPL-2.0

//! Whether a device's requests can be sent, and with which number.

use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

/// Requests cannot be sent and fail; beyond the number and `FORCED`.
const NOT_OPEN: u64 = u64::MAX;

/// Requests cannot be sent and are queued: the device will be opened again.
const WAITING: u64 = u64::MAX - 1;

/// Next to the number: writes are forced through the server's cache.
const FORCED: u64 = 1 << 32;

/// How requests are sent at the moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IoState {
    /// To the device of that number on the server.
    Open(u32),
    /// As `Open`, and writes forced through its cache.
    OpenForceFua(u32),
    /// They are queued until it is open again.
    Queueing,
    /// They fail.
    Failing,
}

impl IoState {
    /// Returns the device's number on the server, if it is open there.
    #[inline]
    pub(super) fn remote_id(self) -> Option<u32> {
        match self {
            IoState::Open(id) | IoState::OpenForceFua(id) => Some(id),
            IoState::Queueing | IoState::Failing => None,
        }
    }

    fn to_word(self) -> u64 {
        match self {
            IoState::Open(id) => u64::from(id),
            IoState::OpenForceFua(id) => FORCED | u64::from(id),
            IoState::Queueing => WAITING,
            IoState::Failing => NOT_OPEN,
        }
    }
}

/// An [`IoState`] that is read for each request. Any context.
pub(super) struct IoStateCell(AtomicU64);

impl IoStateCell {
    /// Returns the state of a device that is not open yet.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(NOT_OPEN))
    }

    /// Returns how requests are sent.
    #[inline]
    pub(super) fn get(&self) -> IoState {
        let word = self.0.load(Relaxed);
        // CAST: the number is the lower half.
        let id = word as u32;
        match word {
            0..FORCED => IoState::Open(id),
            NOT_OPEN => IoState::Failing,
            WAITING => IoState::Queueing,
            _ => IoState::OpenForceFua(id),
        }
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
