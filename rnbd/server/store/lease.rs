// SPDX-License-Identifier: GPL-2.0

//! Permission to use a device, which its mark of use gives for some seconds.

use block_ext::bdev::BlockDevice;
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

/// The time after which who waits for the permission looks for it again.
const WAIT_MS: i64 = 50;

/// Use of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Permitted,
    /// The mark is being looked at, or the device does not answer.
    NotNow,
    /// The device answers with errors: so does all IO until its mark is written again.
    Failing,
    /// Another server has taken the device.
    Lost,
}

/// All is well.
const NONE: u32 = 0;
/// The mark could not be read or written when that was tried last.
const FAILING: u32 = 1;
/// Another server has taken the device; for good.
const LOST: u32 = 2;

/// Permission to use a device.
pub(super) struct Lease {
    begun: Instant<BootTime>,
    /// On the clock of [`now_ms`](Self::now_ms).
    end_ms: AtomicU64,
    /// [`NONE`], [`FAILING`] or [`LOST`]; written by the keeper of the mark.
    trouble: AtomicU32,
    /// The log says that requests wait.
    has_told: AtomicBool,
}

impl Lease {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            end_ms: AtomicU64::new(0),
            trouble: AtomicU32::new(NONE),
            has_told: AtomicBool::new(false),
        }
    }

    /// Returns the milliseconds since it was created, also while the machine was suspended.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(0)
    }

    /// It lasts until then.
    pub(super) fn lasts(&self, end_ms: u64) {
        self.end_ms.store(end_ms, Release);
    }

    /// The mark was read and written, or the device has answered with an error.
    pub(super) fn answered(&self, is_ok: bool) {
        let trouble = if is_ok { NONE } else { FAILING };
        self.trouble.store(trouble, Release);
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

    /// Another server has taken the device.
    pub(super) fn lose(&self) {
        self.trouble.store(LOST, Release);
    }

    /// Returns whether another server has taken the device.
    pub(super) fn is_lost(&self) -> bool {
        self.trouble.load(Acquire) == LOST
    }

    /// Returns whether the device may be used now.
    pub(super) fn state(&self) -> Use {
        let trouble = self.trouble.load(Acquire);
        match trouble {
            LOST => Use::Lost,
            _ if self.now_ms() < self.end_ms.load(Relaxed) => Use::Permitted,
            FAILING => Use::Failing,
            _ => Use::NotNow,
        }
    }

    /// Waits until the device may be used. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another server has taken it; `EIO` if it answers with errors.
    pub(super) fn wait(&self) -> Result {
        loop {
            match self.state() {
                Use::Permitted => return Ok(()),
                Use::Lost => return Err(EBUSY),
                Use::Failing => return Err(EIO),
                Use::NotNow => Self::pause(),
            }
        }
    }

    /// Waits before the next look at it. Sleeps.
    pub(super) fn pause() {
        fsleep(Delta::from_millis(WAIT_MS));
    }
}
