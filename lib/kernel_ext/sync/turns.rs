// SPDX-License-Identifier: GPL-2.0

//! A lock for which a task waits no longer than it lives.

use super::{
    atomic::{
        AtomicBool,
        Ordering, //
    },
    WaitQueue, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::LockClassKey, //
};

/// Creates a [`Turns`] initialiser with the given name and a newly-created lock class.
#[macro_export]
macro_rules! new_turns {
    ($($name:literal)? $(,)?) => {
        $crate::sync::Turns::new(
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}

/// Gives turns to tasks, one at a time: a mutex without data that is waited for killably, for turns
/// that last as long as another machine does not answer.
#[pin_data]
pub struct Turns {
    /// A [`Turn`] exists.
    is_taken: AtomicBool,
    #[pin]
    waiting: WaitQueue,
}

impl Turns {
    /// Creates turns of which none is taken; see [`new_turns!`](crate::new_turns).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            is_taken: AtomicBool::new(false),
            waiting <- WaitQueue::new(name, key),
        })
    }

    /// Waits for a turn, which lasts until it is dropped. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ERESTARTSYS` when the task is killed.
    pub fn take(&self) -> Result<Turn<'_>> {
        let take = || !self.is_taken.swap(true, Ordering::Acquire);
        self.waiting.wait_until_killable(take)?;
        Ok(Turn(self))
    }

    /// Takes a turn if none is taken. Does not sleep.
    pub fn try_take(&self) -> Option<Turn<'_>> {
        (!self.is_taken.swap(true, Ordering::Acquire)).then(|| Turn(self))
    }
}

/// The turn of a task.
#[must_use = "the turn is over when this is dropped"]
pub struct Turn<'t>(&'t Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.waiting.wake_all();
    }
}
