// SPDX-License-Identifier: GPL-2.0

//! A cell that exactly one party holds at a time, and that is never waited for.
//!
//! This is the lock of requests in flight. Whoever starts a request holds its slot, fills it, and
//! *arms* it when the request is handed to the hardware. Whoever learns that the request is over
//! (a completion, or the teardown of the connection) *claims* it; of several exactly one succeeds.
//! Nobody spins, and each step is one or two instructions.
//!
//! ```text
//!          acquire()              arm()
//!   free ------------->  held  ---------->  armed
//!    ^                   |  ^                 |
//!    +-------------------+  +-----------------+
//!         drop(Held)              claim()
//! ```
//!
//! # Examples
//!
//! ```
//! use kernel_ext::sync::Handoff;
//!
//! let slot = Handoff::new(0u32);
//! let mut held = slot.acquire().ok_or(EBUSY)?;
//! *held = 7;
//! held.arm(); // from here on the other side may come
//! assert_eq!(slot.claim().map(|held| *held), Some(7));
//! # Ok::<(), Error>(())
//! ```

use crate::sync::atomic::{AtomicU32, Ordering};
use core::{
    cell::UnsafeCell,
    mem,
    ops::{Deref, DerefMut}, //
};

/// Nobody holds the value, and nobody is expected.
const FREE: u32 = 0;
/// A [`Held`] exists.
const HELD: u32 = 1;
/// A [`Held`] exists, and the event was noted meanwhile.
const HELD_NOTED: u32 = 2;
/// Nobody holds the value, and the one who ends the request is expected.
const ARMED: u32 = 3;
/// As `ARMED`, and the event was noted.
const NOTED: u32 = 4;
/// Nobody holds the value, and only the event is expected.
const WAITING: u32 = 5;

/// A value with an owner that changes hands without waiting.
///
/// # Invariants
///
/// While `state` is `HELD` or `HELD_NOTED`, exactly one [`Held`] of this cell exists (or was
/// forgotten); in the other states there is none.
pub struct Handoff<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves with the cell.
unsafe impl<T: Send> Send for Handoff<T> {}
// SAFETY: by the invariant only one party at a time refers to the value; it may be any thread,
// hence `T: Send`.
unsafe impl<T: Send> Sync for Handoff<T> {}

impl<T> Handoff<T> {
    /// A free cell.
    pub const fn new(value: T) -> Self {
        // INVARIANT: free, and nobody has a `Held`.
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    fn take(&self, from: u32) -> Option<Held<'_, T>> {
        // `Acquire` pairs with the `Release` of the party that let go.
        match self
            .state
            .compare_exchange(from, HELD, Ordering::Acquire, Ordering::Relaxed)
        {
            // INVARIANT: the state was not `HELD`, so no other `Held` exists; now it is.
            Ok(_) => Some(Held { cell: self }),
            Err(_) => None,
        }
    }

    /// Takes a free cell. Any context.
    #[inline(always)]
    #[must_use = "the cell is let go at once"]
    pub fn acquire(&self) -> Option<Held<'_, T>> {
        self.take(FREE)
    }

    /// Takes an armed cell, whatever it still waits for. Any context.
    #[must_use = "the cell is let go at once"]
    pub fn claim(&self) -> Option<Held<'_, T>> {
        self.claim_waiting().map(|(held, _)| held)
    }

    /// The same, and says whether all that the cell still waited for was the event that is noted.
    #[must_use = "the cell is let go at once"]
    pub fn claim_waiting(&self) -> Option<(Held<'_, T>, bool)> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state < ARMED {
                return None;
            }
            // Only a change by somebody else makes it fail.
            if let Some(held) = self.take(state) {
                return Some((held, state == WAITING));
            }
        }
    }

    /// Takes an armed cell that does not wait for its event, and says whether the event was noted.
    /// Any context.
    #[inline(always)]
    #[must_use = "the cell is let go at once"]
    pub fn claim_noted(&self) -> Option<(Held<'_, T>, bool)> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state != ARMED && state != NOTED {
                return None;
            }
            if let Some(held) = self.take(state) {
                return Some((held, state == NOTED));
            }
        }
    }

    /// Notes that the event has happened; if the cell was waiting for it, takes the cell. An event
    /// of a free cell is forgotten. Any context.
    #[inline(always)]
    #[must_use = "the cell is let go at once"]
    pub fn note(&self) -> Option<Held<'_, T>> {
        // Mostly the event is the first.
        let noted = self
            .state
            .compare_exchange(ARMED, NOTED, Ordering::AcqRel, Ordering::Relaxed);
        match noted {
            Ok(_) => None,
            Err(_) => self.note_late(),
        }
    }

    /// The rest of [`Self::note`].
    fn note_late(&self) -> Option<Held<'_, T>> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let next = match state {
                ARMED => NOTED,
                HELD => HELD_NOTED,
                WAITING => HELD,
                _ => return None,
            };
            let noted =
                self.state
                    .compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed);
            if noted.is_ok() {
                // INVARIANT: nobody held a waiting cell; now the state is `HELD`.
                return (state == WAITING).then_some(Held { cell: self });
            }
        }
    }

    /// Whether the cell is armed right now. It may be no longer when this returns.
    #[inline(always)]
    pub fn is_armed(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ARMED
    }

    /// Whether the cell is free right now.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// The value, which nobody else can refer to.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, which nobody else can refer to.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// The right to the value of a [`Handoff`]. Dropping it makes the cell free.
///
/// # Invariants
///
/// The state of `cell` is `HELD` or `HELD_NOTED`, and this is the only `Held` of it.
pub struct Held<'a, T> {
    cell: &'a Handoff<T>,
}

// SAFETY: a `&Held` gives only a `&T`.
unsafe impl<T: Sync> Sync for Held<'_, T> {}
// SAFETY: whoever has the `Held` has the value, hence `T: Send`; the cell is `Sync` then.
unsafe impl<T: Send> Send for Held<'_, T> {}

impl<'a, T> Held<'a, T> {
    /// Lets go of the value and expects one [`Handoff::claim`]. A note is forgotten.
    #[inline(always)]
    pub fn arm(self) {
        let cell = self.cell;
        mem::forget(self);
        // INVARIANT: the only `Held` is gone.
        cell.state.store(ARMED, Ordering::Release);
    }

    /// Lets go of the value and expects one [`Handoff::note`]. If that has come since the value was
    /// taken, the value is given back at once.
    #[inline(always)]
    #[must_use = "the cell is let go at once"]
    pub fn wait_for_note(self) -> Option<Self> {
        let cell = self.cell;
        mem::forget(self);
        // INVARIANT: the only `Held` is gone, if the exchange succeeds.
        let waiting =
            cell.state
                .compare_exchange(HELD, WAITING, Ordering::Release, Ordering::Acquire);
        match waiting {
            Ok(_) => None,
            Err(_) => {
                cell.state.store(HELD, Ordering::Relaxed);
                // INVARIANT: the state was `HELD_NOTED`, which only its holder changes.
                Some(Held { cell })
            }
        }
    }

    /// The cell.
    #[inline(always)]
    pub fn cell(&self) -> &'a Handoff<T> {
        self.cell
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // INVARIANT: the only `Held` is gone.
        self.cell.state.store(FREE, Ordering::Release);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: by the invariant nobody else refers to the value.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: by the invariant nobody else refers to the value.
        unsafe { &mut *self.cell.value.get() }
    }
}
