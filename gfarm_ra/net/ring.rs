// SPDX-License-Identifier: GPL-2.0

//! A queue with a fixed number of places, which allocates nothing after it was made.

use kernel::prelude::*;

/// A queue of at most as many values as it has places.
///
/// # Invariants
///
/// The `len` places from `head` on, modulo their number, hold values; the others are empty.
pub(super) struct Ring<T> {
    places: KVec<Option<T>>,
    head: usize,
    len: usize,
}

impl<T> Ring<T> {
    /// Returns the bytes that so many places take.
    pub(super) const fn bytes(places: usize) -> usize {
        places * size_of::<Option<T>>()
    }

    /// Makes a queue of `places` places, at least 1.
    pub(super) fn new(places: usize) -> Result<Self> {
        let mut empty = KVec::with_capacity(places.max(1), GFP_KERNEL)?;
        for _ in 0..places.max(1) {
            empty.push(None, GFP_KERNEL)?;
        }
        // INVARIANT: There is no value.
        Ok(Self {
            places: empty,
            head: 0,
            len: 0,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.places.len()
    }

    /// Returns the index of the place at a distance from the head, which is at most their number.
    fn index(&self, distance: usize) -> usize {
        let index = self.head.wrapping_add(distance);
        index.checked_rem(self.places.len()).unwrap_or(0)
    }

    /// Adds a value behind the others.
    ///
    /// # Errors
    ///
    /// Returns the value if there is no place.
    pub(super) fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        let index = self.index(self.len);
        match self.places.get_mut(index) {
            // INVARIANT: The place behind the last value holds one now.
            Some(place) => {
                *place = Some(value);
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            None => Err(value),
        }
    }

    /// Takes the first value.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let value = self.places.get_mut(self.head)?.take();
        // INVARIANT: The place of the head is empty now.
        self.head = self.index(1);
        self.len = self.len.wrapping_sub(1);
        value
    }

    /// Takes the first value for which `is_it` holds. The others keep their order.
    pub(super) fn take(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let mut found = None;
        for _ in 0..self.len {
            let value = self.pop()?;
            if found.is_none() && is_it(&value) {
                found = Some(value);
            } else {
                // The value has just left a place.
                let _ = self.push(value);
            }
        }
        found
    }

    /// Returns the value at a distance from the first one.
    pub(super) fn get(&self, distance: usize) -> Option<&T> {
        if distance >= self.len {
            return None;
        }
        self.places.get(self.index(distance))?.as_ref()
    }
}
