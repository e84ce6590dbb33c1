// SPDX-License-Identifier: GPL-2.0

//! The failures of a call, each with its exit code of mount(8): nothing was mounted.

use std::fmt;

/// The reason why nothing was mounted, in words that name the cure where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The call or a file is not as it should be: exit code 1.
    Usage(String),
    /// The system refuses something other than the mount: exit code 2.
    System(String),
    /// The mount failed: exit code 32.
    Mount(String),
}

impl Failure {
    /// Returns the exit code, as mount(8) defines it.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 1,
            Self::System(_) => 2,
            Self::Mount(_) => 32,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::System(text) | Self::Mount(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}
