// SPDX-License-Identifier: GPL-2.0

//! Completions with timeouts.
//!
//! `kernel::sync::Completion` of 7.2 waits without a limit only, and cannot be used again. It
//! replaces this one when it has timeouts, killable waits and `reinit`.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// An event that threads wait for.
///
/// `kernel::sync::Completion` has no timeouts and cannot be reinitialised.
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

// SAFETY: A completion is not tied to a thread.
unsafe impl Send for Completion {}
// SAFETY: The C functions take the completion's lock.
unsafe impl Sync for Completion {}

impl Completion {
    /// Creates a completion that is not done.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: `init_completion` initialises all of it.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: The slot is writable memory for a completion.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Wakes all waiters; later waits return at once. Any context.
    pub fn complete_all(&self) {
        // SAFETY: By the type invariants, `inner` is initialised.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Returns whether [`Completion::complete_all`] was called since the initialisation. Any
    /// context.
    pub fn is_done(&self) -> bool {
        // SAFETY: By the type invariants, `inner` is initialised.
        unsafe { bindings::completion_done(self.inner.get()) }
    }

    /// Reinitialises the completion.
    ///
    /// The caller ensures that no thread waits for the completion or completes it at the same time.
    /// Otherwise a waiter may miss an event, as in C.
    pub fn reinit(&self) {
        // SAFETY: By the type invariants, `inner` is initialised; the field is an aligned integer
        // that C reads and writes in the same way (`reinit_completion`).
        unsafe { (&raw mut (*self.inner.get()).done).write_volatile(0) };
    }

    /// Waits without a timeout. Sleeps, uninterruptible.
    pub fn wait(&self) {
        // SAFETY: By the type invariants, `inner` is initialised.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }

    /// Waits without a timeout. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ERESTARTSYS` when the task is killed.
    pub fn wait_killable(&self) -> Result {
        // SAFETY: By the type invariants, `inner` is initialised.
        to_result(unsafe { bindings::wait_for_completion_killable(self.inner.get()) })
    }

    /// Waits at most `timeout_ms` milliseconds. Sleeps, uninterruptible.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT` on a timeout.
    pub fn wait_timeout_ms(&self, timeout_ms: u32) -> Result {
        let jiffies = msecs_to_jiffies(timeout_ms);
        // SAFETY: By the type invariants, `inner` is initialised.
        match unsafe { bindings::wait_for_completion_timeout(self.inner.get(), jiffies) } {
            0 => Err(ETIMEDOUT),
            _ => Ok(()),
        }
    }

    /// Waits at most `timeout_ms` milliseconds. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT` on a timeout, `ERESTARTSYS` when the task is killed.
    pub fn wait_killable_timeout_ms(&self, timeout_ms: u32) -> Result {
        let jiffies = msecs_to_jiffies(timeout_ms);
        // SAFETY: By the type invariants, `inner` is initialised.
        let left =
            unsafe { bindings::wait_for_completion_killable_timeout(self.inner.get(), jiffies) };
        match left {
            0 => Err(ETIMEDOUT),
            1.. => Ok(()),
            _ => Err(ERESTARTSYS),
        }
    }
}

/// Completes a [`Completion`] when it is dropped: the last field of what others wait for the end
/// of, so that all of it is gone then.
pub struct CompleteOnDrop(Arc<Completion>);

impl CompleteOnDrop {
    /// Creates one for `completion`.
    pub fn new(completion: Arc<Completion>) -> Self {
        Self(completion)
    }
}

impl Drop for CompleteOnDrop {
    fn drop(&mut self) {
        self.0.complete_all();
    }
}
