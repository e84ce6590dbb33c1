// SPDX-License-Identifier: GPL-2.0

//! Permission to use a device, which its mark of use gives for some seconds.

use block_ext::{
    bdev::BlockDevice,
    blocking::Permission, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        BootTime,
        Delta,
        Instant, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU64,
    Ordering::{
        Acquire,
        Relaxed,
        Release, //
    }, //
};

use crate::sidecar::claim::permission::Trouble;

pub(super) use crate::sidecar::claim::permission::Use;

/// The time after which who waits for the permission looks for it again.
const WAIT_MS: i64 = 50;

/// Permission to use a device.
pub(super) struct Lease {
    begun: Instant<BootTime>,
    /// The end of the permission, on the clock of [`now_ms`](Self::now_ms).
    end_ms: AtomicU64,
    /// A [`Trouble`]; written by the keeper of the mark.
    trouble: AtomicU32,
    /// The log says that requests wait.
    has_told: AtomicBool,
}

impl Lease {
    /// Returns a lease without permission.
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            end_ms: AtomicU64::new(0),
            trouble: AtomicU32::new(Trouble::None.into_raw()),
            has_told: AtomicBool::new(false),
        }
    }

    /// Returns the milliseconds since it was created, also while the machine was suspended.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(0)
    }

    /// Extends the permission to `end_ms`, on the clock of [`now_ms`](Self::now_ms).
    pub(super) fn lasts(&self, end_ms: u64) {
        self.end_ms.store(end_ms, Release);
    }

    /// The mark was read and written, or the device has answered with an error.
    pub(super) fn answered(&self, is_ok: bool) {
        let trouble = match is_ok {
            true => Trouble::None,
            false => Trouble::Failing,
        };
        self.trouble.store(trouble.into_raw(), Release);
        self.has_told.store(false, Relaxed);
    }

    /// Says in the log that requests of the device wait, once for each time that they do.
    #[cold]
    pub(super) fn tell_wait(&self, device: &BlockDevice) {
        if !self.has_told.swap(true, Relaxed) {
            pr_warn!(
                "{}: it does not answer: its requests wait until its mark of use is written anew\n",
                device.name().unwrap_or_default()
            );
        }
    }

    /// Ends the permission for good: another server has taken the device.
    pub(super) fn lose(&self) {
        self.trouble.store(Trouble::Lost.into_raw(), Release);
    }

    /// Returns whether another server has taken the device.
    pub(super) fn is_lost(&self) -> bool {
        self.trouble() == Trouble::Lost
    }

    fn trouble(&self) -> Trouble {
        Trouble::from_raw(self.trouble.load(Acquire))
    }

    /// Returns whether the device may be used now.
    pub(super) fn state(&self) -> Use {
        let trouble = self.trouble();
        Use::at(self.now_ms(), self.end_ms.load(Relaxed), trouble)
    }

    /// Waits before the next look at it. Sleeps.
    pub(super) fn pause() {
        fsleep(Delta::from_millis(WAIT_MS));
    }
}

impl Permission for Lease {
    /// Waits until the device may be used. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another server has taken it; `EIO` if it answers with errors.
    fn wait(&self) -> Result {
        loop {
            match self.state() {
                Use::Permitted => return Ok(()),
                Use::Lost => return Err(EBUSY),
                Use::Failing => return Err(EIO),
                Use::NotNow => Self::pause(),
            }
        }
    }

    fn is_given(&self) -> bool {
        self.state() == Use::Permitted
    }
}
