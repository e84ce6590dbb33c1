// SPDX-License-Identifier: GPL-2.0

//! Wait queues.
//!
//! `kernel::sync::CondVar` of 7.2 waits with a lock of the kernel crate only; here a condition may
//! read atomics.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use core::ptr;
use kernel::{
    bindings,
    ffi::{
        c_int,
        c_long, //
    },
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// Creates a [`WaitQueue`] initialiser with the given name and a newly-created lock class.
#[macro_export]
macro_rules! new_wait_queue {
    ($($name:literal)? $(,)?) => {
        $crate::sync::WaitQueue::new(
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}

/// The task state of a waiter that ignores signals.
// CAST: The states are small bit masks.
const UNINTERRUPTIBLE: c_int = bindings::TASK_UNINTERRUPTIBLE as c_int;
/// The task state of a waiter that only a fatal signal wakes.
// CAST: The states are small bit masks.
const KILLABLE: c_int = bindings::TASK_KILLABLE as c_int;
/// No timeout (`MAX_SCHEDULE_TIMEOUT`).
const FOREVER: c_long = c_long::MAX;

/// A queue of tasks that wait for conditions.
///
/// A thread that changes the state of a condition calls [`WaitQueue::wake_all`] after the change. A
/// change between the check and the sleep is not missed.
///
/// # Examples
///
/// ```
/// use kernel_ext::sync::atomic::{AtomicU32, Ordering};
/// use kernel_ext::sync::{new_wait_queue, WaitQueue};
///
/// #[pin_data]
/// struct Inflight {
///     count: AtomicU32,
///     #[pin]
///     idle: WaitQueue,
/// }
///
/// impl Inflight {
///     fn drain(&self) -> Result {
///         self.idle.wait_until_timeout_ms(|| self.count.load(Ordering::Acquire) == 0, 1000)
///     }
/// }
/// ```
///
/// # Invariants
///
/// `head` is initialised and never moves.
#[pin_data]
pub struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head_t>,
}

// SAFETY: A wait queue is not tied to a thread.
unsafe impl Send for WaitQueue {}
// SAFETY: The C functions take the queue's lock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Creates an empty queue; see [`new_wait_queue!`](crate::new_wait_queue).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        // INVARIANT: The C function initialises all of it.
        pin_init!(Self {
            head <- Opaque::ffi_init(|slot: *mut bindings::wait_queue_head_t| {
                // SAFETY: The slot is writable memory for a head; name and key are static.
                unsafe {
                    bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr());
                }
            }),
        })
    }

    /// Wakes all waiters, which check their conditions again. Any context.
    pub fn wake_all(&self) {
        // SAFETY: By the type invariants, `head` is initialised; 0 means all.
        unsafe { bindings::__wake_up(self.head.get(), bindings::TASK_NORMAL, 0, ptr::null_mut()) };
    }

    /// Sleeps until `condition` holds. Uninterruptible. The condition must not sleep.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) {
        // Without a timeout, and with signals ignored, only the condition ends the wait.
        let _ = self.wait(condition, UNINTERRUPTIBLE, FOREVER);
    }

    /// Sleeps until `condition` holds, or the task is killed. The condition must not sleep.
    ///
    /// # Errors
    ///
    /// Returns `ERESTARTSYS` when the task is killed.
    pub fn wait_until_killable(&self, condition: impl FnMut() -> bool) -> Result {
        self.wait(condition, KILLABLE, FOREVER)
    }

    /// Sleeps until `condition` holds, at most `timeout_ms` milliseconds. Uninterruptible. The
    /// condition must not sleep.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT` on a timeout.
    pub fn wait_until_timeout_ms(
        &self,
        condition: impl FnMut() -> bool,
        timeout_ms: u32,
    ) -> Result {
        self.wait(condition, UNINTERRUPTIBLE, ticks(timeout_ms))
    }

    /// Sleeps until `condition` holds, at most `timeout_ms` milliseconds, or until the task is
    /// killed. The condition must not sleep.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT` on a timeout, `ERESTARTSYS` when the task is killed.
    pub fn wait_until_killable_timeout_ms(
        &self,
        condition: impl FnMut() -> bool,
        timeout_ms: u32,
    ) -> Result {
        self.wait(condition, KILLABLE, ticks(timeout_ms))
    }

    fn wait(&self, mut condition: impl FnMut() -> bool, state: c_int, ticks: c_long) -> Result {
        if condition() {
            return Ok(());
        }
        let mut left = ticks;
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: The entry is writable and stays where it is until `finish_wait` below, after
        // which the queue does not refer to it.
        unsafe { bindings::init_wait_entry(entry.get(), 0) };
        let result = loop {
            // SAFETY: Both are initialised.
            let signal =
                unsafe { bindings::prepare_to_wait_event(self.head.get(), entry.get(), state) };
            if condition() {
                break Ok(());
            }
            if signal != 0 {
                break Err(ERESTARTSYS);
            }
            if left == 0 {
                break Err(ETIMEDOUT);
            }
            // SAFETY: A task may always sleep here; the caller is in process context.
            left = unsafe { bindings::schedule_timeout(left) };
        };
        // SAFETY: Both are initialised; the function removes the entry from the queue if it is
        // queued.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }
}

/// Converts milliseconds to a timeout of `schedule_timeout`.
fn ticks(timeout_ms: u32) -> c_long {
    c_long::try_from(msecs_to_jiffies(timeout_ms)).unwrap_or(FOREVER)
}
