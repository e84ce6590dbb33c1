// SPDX-License-Identifier: GPL-2.0

//! Descriptors that are closed together.
//!
//! gfmd hands each question from one of its threads to another, so that closing a file costs it as
//! much as opening it. Nothing waits for a close: descriptors are collected for a short time, and
//! closed by one question. A file that was removed keeps its space as long as it is open, which is
//! why the time is short.

use super::gfm::Fd;

/// The maximum number of descriptors that one question closes.
pub const FDS_MAX: usize = 16;

/// The time for which the first of them waits for others, in milliseconds.
pub const DELAY_MS: u32 = 50;

/// The number of descriptors that may wait to be closed before a file is opened anew which has one
/// already: its second one is beside the limit of the mount.
pub const WAITING_MAX: usize = FDS_MAX;

/// The descriptors of a process of gfmd that open files do not have: those of files that are opened
/// anew, of tasks that were killed while they opened one, and of walks by names.
pub const SPARE: usize = 304;

/// Returns the number of descriptors that may wait to be closed, of a mount whose files may have
/// `open_files` of them: no more are open at gfmd.
pub const fn places(open_files: usize) -> usize {
    open_files.saturating_add(SPARE)
}

/// Descriptors of one process of gfmd.
///
/// # Invariants
///
/// The first `len` places hold descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fds {
    places: [Option<Fd>; FDS_MAX],
    len: usize,
}

impl Fds {
    /// No descriptor.
    pub const NONE: Self = Self {
        places: [None; FDS_MAX],
        len: 0,
    };

    /// Returns the number of descriptors.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds one; returns whether there was room for it.
    pub fn push(&mut self, fd: Fd) -> bool {
        match self.places.get_mut(self.len) {
            // INVARIANT: The next place holds one now.
            Some(place) => {
                *place = Some(fd);
                self.len = self.len.saturating_add(1);
                true
            }
            None => false,
        }
    }

    /// Returns the last ones, at most so many.
    pub fn last(&self, count: usize) -> Self {
        let mut last = Self::NONE;
        for fd in self.iter().skip(self.len.saturating_sub(count)) {
            // There is room for as many as there are here.
            let _ = last.push(fd);
        }
        last
    }

    /// Iterates over them in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Fd> + '_ {
        self.places.iter().flatten().copied()
    }
}
