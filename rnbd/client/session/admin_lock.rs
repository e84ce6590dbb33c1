// SPDX-License-Identifier: GPL-2.0

//! The lock under which a thread sends OPEN or CLOSE, or validates a path: see
//! [`admin_lock`](crate::proto::admin_lock).

use kernel::{
    prelude::*,
    sync::{
        new_spinlock,
        SpinLock, //
    },
};
use kernel_ext::{
    new_wait_queue,
    sync::WaitQueue, //
};

use crate::{
    client::trace::Traced,
    proto::admin_lock::{
        record::{
            Event,
            Operation, //
        },
        LockMode,
        LockState, //
        LostCloses,
    },
};

/// The lock of a session.
#[pin_data]
pub(super) struct AdminLock {
    #[pin]
    state: SpinLock<Traced<LockState>>,
    #[pin]
    unlocked: WaitQueue,
    #[pin]
    lost_closes: SpinLock<LostCloses>,
}

impl AdminLock {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(Traced::new(LockState::NONE)),
            unlocked <- new_wait_queue!("AdminLock::unlocked"),
            lost_closes <- new_spinlock!(LostCloses::NONE),
        })
    }

    /// Waits for the lock in `mode`, at most `timeout_ms`; sleeps, and can be killed.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, or `ERESTARTSYS` when the thread is killed.
    pub(super) fn lock(&self, mode: LockMode, timeout_ms: u32) -> Result<AdminLockGuard<'_>> {
        if !self.state.lock().step(Event::Lock(mode)) {
            let retry = || self.state.lock().step(Event::Retry(mode));
            self.unlocked
                .wait_until_killable_timeout_ms(retry, timeout_ms)
                .inspect_err(|_| self.end(Event::GiveUp(mode)))?;
        }
        Ok(AdminLockGuard { lock: self, mode })
    }

    /// Ends the use of the lock, or the wait for it, and wakes those that may have it now.
    fn end(&self, event: Event) {
        if self.state.lock().step(event) {
            self.did(Operation::Wake);
            self.unlocked.wake_all();
        }
    }

    /// Records what is about to be done.
    fn did(&self, operation: Operation) {
        self.state.lock().did(operation);
    }

    /// Records that a CLOSE has unlocked without an answer.
    pub(super) fn close_lost(&self, number: u32) {
        self.lost_closes.lock().add(number);
    }

    /// Returns whether a lost CLOSE may still end the device that the server has open under
    /// `number`.
    pub(super) fn is_in_doubt(&self, number: u32, is_any_lost: bool) -> bool {
        self.lost_closes.lock().include(number, is_any_lost)
    }
}

/// The lock, held until this is dropped.
pub(in crate::client) struct AdminLockGuard<'a> {
    lock: &'a AdminLock,
    mode: LockMode,
}

impl AdminLockGuard<'_> {
    /// Records that an OPEN is about to be sent.
    pub(in crate::client) fn opens(&self) {
        self.lock.did(Operation::Open(self.mode));
    }

    /// Records that a number is about to be used for requests.
    pub(in crate::client) fn uses(&self) {
        self.lock.did(Operation::Use(self.mode));
    }

    /// Records that a CLOSE is about to be sent.
    pub(super) fn closes(&self) {
        self.lock.did(Operation::Close(self.mode));
    }
}

impl Drop for AdminLockGuard<'_> {
    fn drop(&mut self) {
        self.lock.end(Event::Unlock);
    }
}
