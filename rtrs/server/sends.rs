// SPDX-License-Identifier: GPL-2.0

//! Room on the send queue of one connection, and the answers that wait for it.

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32,
    Ordering::{
        Relaxed,
        SeqCst, //
    },
};

use kernel::prelude::*;
use kernel_ext::{
    new_irq_lock,
    sync::IrqLock, //
};

use super::slot::Slot;

/// Slots in the order in which they came, linked through [`Slot::next`]: any number of them, and
/// nothing to allocate.
pub(crate) struct Chain {
    /// Newest first.
    pushed: Option<KBox<Slot>>,
    /// Oldest first; filled from `pushed` when it is empty.
    sorted: Option<KBox<Slot>>,
}

impl Chain {
    /// No slot.
    pub(crate) const fn new() -> Self {
        Self {
            pushed: None,
            sorted: None,
        }
    }

    /// Appends `slot`.
    pub(crate) fn push(&mut self, mut slot: KBox<Slot>) {
        slot.next = self.pushed.take();
        self.pushed = Some(slot);
    }

    /// Takes out the slot that came first.
    pub(crate) fn pop(&mut self) -> Option<KBox<Slot>> {
        if self.sorted.is_none() {
            while let Some(mut slot) = self.pushed.take() {
                self.pushed = slot.next.take();
                slot.next = self.sorted.take();
                self.sorted = Some(slot);
            }
        }
        let mut first = self.sorted.take()?;
        self.sorted = first.next.take();
        Some(first)
    }

    fn is_empty(&self) -> bool {
        self.pushed.is_none() && self.sorted.is_none()
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // One after the other: the compiler's way recurses.
        while self.pop().is_some() {}
    }
}

/// Room on one send queue, counted in answers.
///
/// Each answer, and each heartbeat, takes one of `room` and is counted; each `interval`th asks for
/// a completion, which gives `interval` of them back. `interval <= room`, so whenever there is no
/// room left a completion is on its way.
#[pin_data]
pub(crate) struct Sends {
    room: AtomicI32,
    count: AtomicU32,
    interval: u32,
    /// `waiting` may hold something: read before the lock is taken.
    has_waiting: AtomicBool,
    #[pin]
    waiting: IrqLock<Chain>,
}

impl Sends {
    /// A queue with room for `room` answers, one in `interval` of which asks for a completion.
    pub(crate) fn new(room: u32, interval: u32) -> impl PinInit<Self> {
        let answers = i32::try_from(room).unwrap_or(i32::MAX).max(1);
        pin_init!(Self {
            room: AtomicI32::new(answers),
            count: AtomicU32::new(1),
            interval: interval.clamp(1, answers.unsigned_abs()),
            has_waiting: AtomicBool::new(false),
            waiting <- new_irq_lock!(Chain::new(), "Sends::waiting"),
        })
    }

    /// Takes room for one answer; `false` if there is none.
    #[inline]
    pub(crate) fn reserve(&self) -> bool {
        if self.room.fetch_sub(1, SeqCst) > 0 {
            return true;
        }
        self.room.fetch_add(1, SeqCst);
        false
    }

    /// Gives back room that was reserved and not used.
    pub(crate) fn unreserve(&self) {
        self.room.fetch_add(1, SeqCst);
    }

    /// Counts an answer that is about to be posted; says whether it is to ask for a completion.
    #[inline]
    pub(crate) fn next_is_signaled(&self) -> bool {
        let count = self.count.fetch_add(1, Relaxed).wrapping_add(1);
        count.checked_rem(self.interval) == Some(0)
    }

    /// A completion that was asked for has come.
    #[inline]
    pub(crate) fn completed(&self) {
        // CAST: at most `room`, which fits.
        self.room.fetch_add(self.interval as i32, SeqCst);
    }

    /// Puts an answer in the queue of those that wait.
    #[cold]
    pub(crate) fn wait(&self, slot: KBox<Slot>) {
        let mut waiting = self.waiting.lock();
        waiting.push(slot);
        self.has_waiting.store(true, SeqCst);
    }

    /// Whether answers wait, as far as can be seen without the lock.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting.load(SeqCst)
    }

    /// Takes the answer that has waited longest.
    #[cold]
    pub(crate) fn next_waiting(&self) -> Option<KBox<Slot>> {
        let mut waiting = self.waiting.lock();
        let first = waiting.pop();
        if waiting.is_empty() {
            self.has_waiting.store(false, SeqCst);
        }
        first
    }
}
