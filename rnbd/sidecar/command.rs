// SPDX-License-Identifier: GPL-2.0

//! Commands of an administrator for the work that a device in use does beside its requests.

use ferro_proto::text;

use super::proto::control::UnknownWord;

/// A value of the files `scrub` and `grow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The work, from its beginning on.
    Start,
    /// The end of the work that runs.
    Stop,
}

impl Command {
    /// Parses what was written to the file.
    ///
    /// # Errors
    ///
    /// Returns an error for all but one word that it knows.
    pub fn parse(written: &[u8]) -> Result<Self, UnknownWord> {
        match text::trim(written) {
            b"start" => Ok(Self::Start),
            b"stop" => Ok(Self::Stop),
            _ => Err(UnknownWord),
        }
    }
}
