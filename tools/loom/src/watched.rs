// SPDX-License-Identifier: GPL-2.0

//! A value of which loom sees each access.

use loom::cell::UnsafeCell;

/// A value whose accesses loom compares: two of them, one a change, that no synchronisation orders
/// fail the test.
/// Its end is a change.
pub struct Watched(UnsafeCell<()>);

// SAFETY: The cell has no bytes; what is shared is loom's record of the accesses.
unsafe impl Sync for Watched {}

impl Watched {
    /// Creates one; must be called in a model.
    pub fn new() -> Self {
        Self(UnsafeCell::new(()))
    }

    /// Notes that it was read.
    pub fn read(&self) {
        self.0.with(|_| ());
    }

    /// Notes that it was changed.
    pub fn change(&self) {
        self.0.with_mut(|_| ());
    }
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A second panic would end the process without a word about the test.
        if !std::thread::panicking() {
            self.change();
        }
    }
}
