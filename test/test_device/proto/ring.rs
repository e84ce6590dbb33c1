// SPDX-License-Identifier: GPL-2.0

//! The places of a ring of fixed length.

/// The places of a ring that are in use. The user has the entries in an array of the same length.
///
/// # Invariants
///
/// `len <= capacity`, and `head < capacity` unless the capacity is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    head: usize,
    len: usize,
    capacity: usize,
}

impl Ring {
    /// Creates an empty ring.
    pub const fn new(capacity: usize) -> Self {
        // INVARIANT: Both are 0.
        Self {
            head: 0,
            len: 0,
            capacity,
        }
    }

    /// Returns whether no place is in use.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of places that are not in use.
    pub const fn room(&self) -> usize {
        self.capacity.saturating_sub(self.len)
    }

    /// Takes the place behind the last one; [`None`] if the ring is full.
    pub fn push(&mut self) -> Option<usize> {
        if self.len >= self.capacity {
            return None;
        }
        let place = self.place(self.len);
        // INVARIANT: `len < capacity` by the check above.
        self.len = self.len.wrapping_add(1);
        Some(place)
    }

    /// Returns the first place, which stays in use.
    pub fn first(&self) -> Option<usize> {
        (self.len > 0).then_some(self.head)
    }

    /// Returns the place of the entry number `index`, counted from the first.
    pub fn nth(&self, index: usize) -> Option<usize> {
        (index < self.len).then(|| self.place(index))
    }

    /// Gives up the first place and returns it.
    pub fn pop(&mut self) -> Option<usize> {
        let place = self.first()?;
        // INVARIANT: `place(1)` is below the capacity, and `len > 0`, as `first` has returned.
        self.head = self.place(1);
        self.len = self.len.saturating_sub(1);
        Some(place)
    }

    /// Gives up the last place and returns it.
    pub fn pop_last(&mut self) -> Option<usize> {
        let last = self.len.checked_sub(1)?;
        let place = self.place(last);
        self.len = last;
        Some(place)
    }

    /// Returns the place `offset` behind the first one. `offset <= capacity`.
    fn place(&self, offset: usize) -> usize {
        let place = self.head.wrapping_add(offset);
        if place >= self.capacity {
            place.wrapping_sub(self.capacity)
        } else {
            place
        }
    }
}
