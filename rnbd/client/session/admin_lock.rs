// SPDX-License-Identifier: GPL-2.0

//! The lock under which a thread sends OPEN or CLOSE, or validates a path: see
//! [`admin_lock`](crate::proto::admin_lock).

use kernel::{
    prelude::*,
    sync::{
        new_spinlock,
        Arc,
        SpinLock, //
    },
};
use kernel_ext::{
    errno,
    new_wait_queue,
    sync::WaitQueue, //
};

use rtrs_client::AdminChannel;
use rtrs_core::proto::timeouts::ONE_PATH_ANSWER_MS;

use super::{
    Device,
    Session, //
};
use crate::{
    client::{
        admin,
        trace::Traced, //
    },
    proto::{
        admin_lock::{
            record::{
                Event,
                Operation, //
            },
            LockMode,
            LockState,
            LostCloses,
            NumberCheck, //
        },
        occasion::ANSWER_MS,
    },
};

/// The maximum time for which the lock is held: by a server of the C driver, for two messages that
/// wait for their ids and for their answers.
const LOCK_TIMEOUT_MS: u32 = 4 * ANSWER_MS;

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

impl Session {
    /// Waits until the messages of `mode` may be sent; sleeps, and can be killed. The thread that
    /// holds the lock must not take it again.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, or `ERESTARTSYS` when the thread is killed.
    pub(in crate::client) fn lock_admin(&self, mode: LockMode) -> Result<AdminLockGuard<'_>> {
        let timeout_ms = match mode {
            LockMode::Open | LockMode::Close => LOCK_TIMEOUT_MS,
            // The path is tried again, and a thread that closes it waits for this.
            LockMode::Validate => ONE_PATH_ANSWER_MS,
        };
        self.admin_lock.lock(mode, timeout_ms)
    }

    /// Waits as [`Self::lock_admin`] does for a validation that no path waits for.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, or `ERESTARTSYS` when the thread is killed.
    pub(in crate::client) fn lock_admin_to_settle(&self) -> Result<AdminLockGuard<'_>> {
        self.admin_lock.lock(LockMode::Validate, LOCK_TIMEOUT_MS)
    }

    /// Closes on the server what is open there under a number, unless a device uses the number.
    /// The holder of `guard` excludes an OPEN that would return the number meanwhile. Sleeps.
    /// Returns `false` if the server may have it open still.
    pub(in crate::client) fn close_number(
        &self,
        guard: &AdminLockGuard<'_>,
        on: &impl AdminChannel,
        id: u32,
    ) -> bool {
        let is_used = |device: &Arc<Device>| device.io_state().is_number(id);
        let is_used = self.devices.lock().iter().any(is_used);
        if is_used {
            return true;
        }
        guard.closes();
        let is_closed = admin::close(on, id);
        if !is_closed {
            self.admin_lock.close_lost(id);
        }
        is_closed
    }

    /// Checks whether a device may be used with the number that the server has given it after the
    /// device was disconnected so often.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` if it was disconnected since and another device has the number, which the
    /// next server has given to that one, `EAGAIN` as long as a lost CLOSE may still reach the
    /// server, `EINVAL` if another device has the number, whose requests would reach the wrong
    /// disk: they fail from now on.
    pub(in crate::client) fn check_number(
        &self,
        device: &Arc<Device>,
        id: u32,
        disconnects: u32,
    ) -> Result {
        let rtrs = device.rtrs();
        let other = self.other_with_number(device, id);
        let check = NumberCheck::new(
            other.is_some(),
            || device.disconnects() == disconnects,
            || self.admin_lock.is_in_doubt(id, rtrs.is_any_lost()),
        );
        match check {
            NumberCheck::Use => Ok(()),
            NumberCheck::Outdated => Err(errno::ECONNABORTED),
            NumberCheck::OfTwo => {
                if let Some(other) = other {
                    pr_err!(
                        "{device}: the server has given it the number {id}, with which {other} is \
                         open\n"
                    );
                    other.not_open_there(id);
                }
                Err(EINVAL)
            }
            NumberCheck::InDoubt => {
                // Ends the wait also if no path comes back that would end it.
                rtrs.wait_for_lost();
                Err(EAGAIN)
            }
        }
    }
}
