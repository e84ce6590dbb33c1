// SPDX-License-Identifier: GPL-2.0

//! Lets the kernel's log print what pure code describes.

use kernel::fmt;

/// A value of `proto` in a log line or in a file of sysfs.
///
/// Pure code knows `core::fmt` only; the kernel's macros ask for a trait of their own.
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: core::fmt::Display> fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
