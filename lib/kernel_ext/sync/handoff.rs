// SPDX-License-Identifier: GPL-2.0

//! A cell that exactly one thread holds at a time, and that no thread waits for.
//!
//! This is the lock of requests in flight. The submitter of a request acquires the cell, fills it,
//! and *arms* it before it posts the request. The completion handler or the teardown of the
//! connection *claims* it to end the request; of several concurrent claims exactly one succeeds. No
//! thread spins, and each step is one or two instructions.
//!
//! ```text
//!          acquire()              arm()
//!   free ------------->  held  ---------->  armed
//!    ^                   |  ^                 |
//!    +-------------------+  +-----------------+
//!         drop(Held)              claim()
//! ```
//!
//! Who has claimed it may have it wait for an event, or put it aside for another thread.
//!
//! # Examples
//!
//! ```
//! use kernel_ext::sync::Handoff;
//!
//! let slot = Handoff::new(0u32);
//! let mut held = slot.acquire().ok_or(EBUSY)?;
//! *held = 7;
//! held.arm(); // from here on the completion may claim it
//! assert_eq!(slot.claim().map(|held| *held), Some(7));
//! # Ok::<(), Error>(())
//! ```

use crate::sync::atomic::{AtomicU32, Ordering};
use core::{
    cell::UnsafeCell,
    mem,
    ops::{Deref, DerefMut}, //
};

/// No [`Held`] exists, and a request can acquire the cell.
const FREE: u32 = 0;
/// A [`Held`] exists.
const HELD: u32 = 1;
/// A [`Held`] exists, and the event was signaled meanwhile.
const HELD_NOTED: u32 = 2;
/// No [`Held`] exists, and the cell waits for a claim.
const ARMED: u32 = 3;
/// The cell waits as with `ARMED`, and the event was signaled.
const SIGNALED: u32 = 4;
/// No [`Held`] exists, and the cell waits for the event only.
const WAITING: u32 = 5;
/// No [`Held`] exists, and the cell waits for [`Handoff::claim_aside`].
const ASIDE: u32 = 6;

/// A value whose ownership passes between threads without waiting.
///
/// # Invariants
///
/// While `state` is `HELD` or `HELD_NOTED`, exactly one [`Held`] of this cell exists (or was
/// forgotten); in the other states there is none.
pub struct Handoff<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: The cell owns the value, hence `T: Send`.
unsafe impl<T: Send> Send for Handoff<T> {}
// SAFETY: By the type invariants, at most one `Held` refers to the value; it may be in any thread,
// hence `T: Send`.
unsafe impl<T: Send> Sync for Handoff<T> {}

impl<T> Handoff<T> {
    /// Creates a free cell.
    pub const fn new(value: T) -> Self {
        // INVARIANT: The state is `FREE`, and no `Held` exists.
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    fn take(&self, from: u32) -> Option<Held<'_, T>> {
        // `Acquire` pairs with the `Release` of the last holder.
        match self
            .state
            .compare_exchange(from, HELD, Ordering::Acquire, Ordering::Relaxed)
        {
            // INVARIANT: The state was not `HELD`, so no other `Held` exists; now it is `HELD`.
            Ok(_) => Some(Held { cell: self }),
            Err(_) => None,
        }
    }

    /// Acquires a free cell. Any context.
    #[inline(always)]
    #[must_use = "the cell is released at once"]
    pub fn acquire(&self) -> Option<Held<'_, T>> {
        self.take(FREE)
    }

    /// Claims an armed cell, also if it waits for its event or was put aside. Any context.
    #[must_use = "the cell is released at once"]
    pub fn claim(&self) -> Option<Held<'_, T>> {
        self.claim_waiting().map(|(held, _)| held)
    }

    /// Claims a cell as [`Self::claim`] does, and returns whether it had been claimed before: it
    /// waited for its event only, or was put aside.
    #[must_use = "the cell is released at once"]
    pub fn claim_waiting(&self) -> Option<(Held<'_, T>, bool)> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state < ARMED {
                return None;
            }
            // Fails only if another thread changed the state.
            if let Some(held) = self.take(state) {
                return Some((held, state >= WAITING));
            }
        }
    }

    /// Claims a cell that was [put aside](Held::put_aside). Any context.
    #[must_use = "the cell is released at once"]
    pub fn claim_aside(&self) -> Option<Held<'_, T>> {
        // Most often it was not, and the cache line stays shared.
        match self.state.load(Ordering::Relaxed) {
            ASIDE => self.take(ASIDE),
            _ => None,
        }
    }

    /// Claims an armed cell that does not wait for its event, and returns whether the event was
    /// signaled. Any context.
    #[inline(always)]
    #[must_use = "the cell is released at once"]
    pub fn claim_signaled(&self) -> Option<(Held<'_, T>, bool)> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state != ARMED && state != SIGNALED {
                return None;
            }
            if let Some(held) = self.take(state) {
                return Some((held, state == SIGNALED));
            }
        }
    }

    /// Signals the event, and claims the cell if it was waiting for the event. The event of a free
    /// cell, and of one that was put aside, is ignored. Any context.
    #[inline(always)]
    #[must_use = "the cell is released at once"]
    pub fn signal(&self) -> Option<Held<'_, T>> {
        // A holder that is about to wait looks for the event first: most find the cell held.
        let state = self.state.load(Ordering::Relaxed);
        if state == HELD {
            let noted =
                self.state
                    .compare_exchange(HELD, HELD_NOTED, Ordering::AcqRel, Ordering::Relaxed);
            if noted.is_ok() {
                return None;
            }
        }
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let next = match state {
                ARMED => SIGNALED,
                HELD => HELD_NOTED,
                WAITING => HELD,
                _ => return None,
            };
            // Fails only if another thread changed the state.
            let signaled =
                self.state
                    .compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed);
            if signaled.is_ok() {
                // INVARIANT: A waiting cell has no `Held`; now the state is `HELD`.
                return (state == WAITING).then(|| Held { cell: self });
            }
        }
    }

    /// Returns whether the cell is armed. The state may have changed when this returns.
    #[inline(always)]
    pub fn is_armed(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ARMED
    }

    /// Returns whether the cell is free. The state may have changed when this returns.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Returns the value; the access is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Returns the value; the access is exclusive.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// Exclusive access to the value of a [`Handoff`]. Dropping it frees the cell.
///
/// # Invariants
///
/// The state of `cell` is `HELD` or `HELD_NOTED`, and this is the only `Held` of it.
pub struct Held<'a, T> {
    cell: &'a Handoff<T>,
}

// SAFETY: A `&Held` gives only a `&T`.
unsafe impl<T: Sync> Sync for Held<'_, T> {}
// SAFETY: The `Held` gives exclusive access to the value, hence `T: Send`, with which the cell is
// `Sync`.
unsafe impl<T: Send> Send for Held<'_, T> {}

impl<'a, T> Held<'a, T> {
    /// Releases the value; the cell waits for one [`Handoff::claim`]. A signaled event is ignored.
    #[inline(always)]
    pub fn arm(self) {
        let cell = self.cell;
        mem::forget(self);
        // INVARIANT: `self` was the only `Held`.
        cell.state.store(ARMED, Ordering::Release);
    }

    /// Releases the value; the cell waits for one [`Handoff::claim_aside`], or for a claim of any
    /// kind, but for [`Handoff::claim_signaled`]. A signaled event is ignored.
    pub fn put_aside(self) {
        let cell = self.cell;
        mem::forget(self);
        // INVARIANT: `self` was the only `Held`.
        cell.state.store(ASIDE, Ordering::Release);
    }

    /// Releases the value; the cell waits for one [`Handoff::signal`]. Returns the value if the
    /// event was signaled since it was acquired.
    #[inline(always)]
    #[must_use = "the cell is released at once"]
    pub fn await_signal(self) -> Option<Self> {
        let cell = self.cell;
        mem::forget(self);
        // INVARIANT: `self` was the only `Held`, and is forgotten if the exchange succeeds.
        let waiting =
            cell.state
                .compare_exchange(HELD, WAITING, Ordering::Release, Ordering::Acquire);
        match waiting {
            Ok(_) => None,
            Err(_) => {
                cell.state.store(HELD, Ordering::Relaxed);
                // INVARIANT: The state was `HELD_NOTED`, which only its holder changes.
                Some(Held { cell })
            }
        }
    }

    /// Returns whether the event was signaled since the value was acquired or claimed. The holder
    /// sees then what was done before the signal.
    #[inline(always)]
    pub fn was_signaled(&self) -> bool {
        self.cell.state.load(Ordering::Acquire) == HELD_NOTED
    }

    /// Returns the cell.
    #[inline(always)]
    pub fn cell(&self) -> &'a Handoff<T> {
        self.cell
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // INVARIANT: `self` was the only `Held`.
        self.cell.state.store(FREE, Ordering::Release);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, this is the only `Held`, hence the access is exclusive.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants, this is the only `Held`, hence the access is exclusive.
        unsafe { &mut *self.cell.value.get() }
    }
}
