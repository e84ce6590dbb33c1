// SPDX-License-Identifier: GPL-2.0

//! Completions with timeouts.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// Something that happens, and that others wait for.
///
/// `kernel::sync::Completion` can neither time out nor be used again.
///
/// # Examples
///
/// ```
/// use kernel::sync::Arc;
/// use kernel_ext::sync::Completion;
///
/// let done = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
/// assert_eq!(done.wait_timeout_ms(10), Err(ETIMEDOUT));
/// done.complete_all();
/// done.wait();
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `inner` is initialised and never moves.
#[pin_data]
pub struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: a completion belongs to no thread.
unsafe impl Send for Completion {}
// SAFETY: the C functions take the lock inside.
unsafe impl Sync for Completion {}

impl Completion {
    /// Something that has not happened yet.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: `init_completion` initialises all of it.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: the slot is writable memory for a completion.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// It happened: wakes all who wait, and whoever waits from now on returns at once. Any context.
    pub fn complete_all(&self) {
        // SAFETY: initialised by the invariant.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Whether [`Completion::complete_all`] was called since the start. Any context.
    pub fn is_done(&self) -> bool {
        // SAFETY: initialised by the invariant.
        unsafe { bindings::completion_done(self.inner.get()) }
    }

    /// Makes it not have happened.
    ///
    /// For a completion that nobody waits for and that nobody completes at the same time; otherwise
    /// a waiter may miss an event, as in C.
    pub fn reinit(&self) {
        // SAFETY: initialised by the invariant; the field is an aligned integer that C reads and
        // writes in the same way (`reinit_completion`).
        unsafe { (&raw mut (*self.inner.get()).done).write_volatile(0) };
    }

    /// Waits without end. Sleeps, uninterruptible.
    pub fn wait(&self) {
        // SAFETY: initialised by the invariant.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }

    /// Waits until it happens, or the task is killed. Sleeps.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when the task is killed.
    pub fn wait_killable(&self) -> Result {
        // SAFETY: initialised by the invariant.
        to_result(unsafe { bindings::wait_for_completion_killable(self.inner.get()) })
    }

    /// Waits at most `timeout_ms` milliseconds. Sleeps, uninterruptible.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`.
    pub fn wait_timeout_ms(&self, timeout_ms: u32) -> Result {
        let jiffies = msecs_to_jiffies(timeout_ms);
        // SAFETY: initialised by the invariant.
        match unsafe { bindings::wait_for_completion_timeout(self.inner.get(), jiffies) } {
            0 => Err(ETIMEDOUT),
            _ => Ok(()),
        }
    }

    /// Waits at most `timeout_ms` milliseconds, or until the task is killed. Sleeps.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`; `ERESTARTSYS` when the task is killed.
    pub fn wait_killable_timeout_ms(&self, timeout_ms: u32) -> Result {
        let jiffies = msecs_to_jiffies(timeout_ms);
        // SAFETY: initialised by the invariant.
        let left =
            unsafe { bindings::wait_for_completion_killable_timeout(self.inner.get(), jiffies) };
        match left {
            0 => Err(ETIMEDOUT),
            1.. => Ok(()),
            _ => Err(ERESTARTSYS),
        }
    }
}
