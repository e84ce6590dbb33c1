// SPDX-License-Identifier: GPL-2.0

//! The uses of an object, counted without locked instructions, until it is closed.
//!
//! `struct percpu_ref` does the same by two calls, each with a section of RCU, for a use.
//!
//! C header: [`include/linux/smp.h`](srctree/include/linux/smp.h)

use crate::{
    percpu::Counts,
    sync::atomic::{AtomicU32, Ordering}, //
};
use kernel::{
    bindings,
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// The counts: uses that have begun, and that have ended.
const BEGUN: usize = 0;
const ENDED: usize = 1;

/// New uses are permitted.
const OPEN: u32 = 0;
/// New uses are refused by CPUs that see this.
const CLOSED: u32 = 1;
/// All CPUs have seen that.
const SEEN: u32 = 2;

/// The time between two looks of a closing context at the uses that have not ended.
const LOOK_TIME: Delta = Delta::from_micros(20);

/// Counts uses, and refuses new ones once it is closed.
///
/// A use counts its begin and looks then whether it is refused; who closes says so, makes all CPUs
/// pass a barrier, and looks at the counts then. So of a use and a close one sees the other: a use
/// that was not refused has counted its begin before its CPU passed the barrier. A use that
/// migrates in between passed one, too.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::Users;
///
/// let users = Users::new()?;
/// let user = users.enter();
/// assert!(user.is_some());
/// drop(user);
/// users.close();
/// assert!(users.enter().is_none());
/// # Ok::<(), Error>(())
/// ```
pub struct Users {
    counts: Counts<2>,
    state: AtomicU32,
}

/// One use; [`Users::close`] waits until it is dropped.
pub struct User<'a>(&'a Users);

impl Users {
    /// Returns a value without users, open. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if there is no memory for the counts.
    pub fn new() -> Result<Self> {
        Ok(Self {
            counts: Counts::new()?,
            state: AtomicU32::new(OPEN),
        })
    }

    /// Begins a use; [`None`] if it is closed. Any context.
    #[inline(always)]
    pub fn enter(&self) -> Option<User<'_>> {
        self.counts.increment::<BEGUN>();
        let user = User(self);
        if self.state.load(Ordering::Acquire) != OPEN {
            return None;
        }
        Some(user)
    }

    /// Refuses new uses, and waits for the end of those that there are. May be called repeatedly,
    /// and by several contexts. The first call interrupts all CPUs for a moment. Sleeps.
    pub fn close(&self) {
        Self::close_all([self]);
    }

    /// [Closes](Self::close) several, with one interrupt.
    pub fn close_all<'a>(all: impl IntoIterator<Item = &'a Self, IntoIter: Clone>) {
        let all = all.into_iter();
        let mut is_seen = true;
        for users in all.clone() {
            let before = users.state.fetch_max(CLOSED, Ordering::SeqCst);
            is_seen &= before == SEEN;
        }
        if !is_seen {
            // SAFETY: The called function has no safety requirements. The caller may sleep, so
            // interrupts are enabled.
            unsafe { bindings::kick_all_cpus_sync() };
        }
        for users in all {
            users.state.store(SEEN, Ordering::Release);
            while !users.is_unused() {
                fsleep(LOOK_TIME);
            }
        }
    }

    /// Permits uses of what was closed, and is not being closed: a close beside it may miss them.
    /// Any context.
    pub fn open(&self) {
        self.state.store(OPEN, Ordering::Release);
    }

    /// Returns whether all uses have ended, of which none begins any more.
    fn is_unused(&self) -> bool {
        // The ends first: each use whose end is counted here is among the begins.
        let ended = self.counts.sum(ENDED);
        self.counts.sum(BEGUN) == ended
    }
}

impl Drop for User<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.counts.increment::<ENDED>();
    }
}
