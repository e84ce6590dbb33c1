// SPDX-License-Identifier: GPL-2.0

//! Requests in their order, by their tags.

/// The requests of an array at a time.
pub(super) const DEPTH: usize = 64;

/// A queue of tags below [`DEPTH`]. Each is in it at most once.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    tags: [u8; DEPTH],
    first: usize,
    len: usize,
}

impl Tags {
    /// None.
    pub(super) const NONE: Self = Self {
        tags: [0; DEPTH],
        first: 0,
        len: 0,
    };

    /// Whether there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends one.
    pub(super) fn push(&mut self, tag: usize) {
        let place = self.first.wrapping_add(self.len) % DEPTH;
        if let Some(to) = self.tags.get_mut(place) {
            // CAST: It is below the depth.
            *to = tag as u8;
            self.len = self.len.saturating_add(1).min(DEPTH);
        }
    }

    /// Returns the first one.
    pub(super) fn front(&self) -> Option<usize> {
        let front = self.tags.get(self.first).copied();
        front.filter(|_| self.len > 0).map(usize::from)
    }

    /// Takes the first one.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let front = self.front()?;
        self.first = self.first.wrapping_add(1) % DEPTH;
        self.len = self.len.saturating_sub(1);
        Some(front)
    }

    /// Takes all of them.
    pub(super) fn take_all(&mut self) -> Self {
        core::mem::replace(self, Self::NONE)
    }
}

impl Iterator for Tags {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.pop()
    }
}
