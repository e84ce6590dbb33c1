// SPDX-License-Identifier: GPL-2.0

//! The clock and the events, in virtual nanoseconds.

use std::{
    cmp::Ordering,
    collections::BinaryHeap, //
};

struct Entry<E> {
    at_ns: u64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest is the greatest, as `BinaryHeap` requires; of two at the same time, the first
    /// queued.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

/// The queue of events.
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    order: u64,
}

impl<E> Agenda<E> {
    pub(crate) const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            order: 0,
        }
    }

    /// Queues an event.
    pub(crate) fn push(&mut self, at_ns: u64, event: E) {
        self.order += 1;
        self.heap.push(Entry {
            at_ns,
            order: self.order,
            event,
        });
    }

    /// Takes the next event with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at_ns, entry.event))
    }
}
