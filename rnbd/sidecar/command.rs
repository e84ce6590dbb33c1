// SPDX-License-Identifier: GPL-2.0

//! Commands of an administrator for the work that a device in use does beside its requests.

use ferro_proto::text;

use super::proto::control::UnknownWord;

/// A value of the file `grow`.
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

/// A value of the file `scrub`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubCommand {
    /// A scrub, from its beginning on.
    Start {
        /// PI blocks that cannot be read are written anew while it runs.
        mends: bool,
    },
    /// The end of the scrub that runs.
    Stop,
}

impl ScrubCommand {
    /// Parses what was written to the file.
    ///
    /// # Errors
    ///
    /// Returns an error for all but one word that it knows.
    pub fn parse(written: &[u8]) -> Result<Self, UnknownWord> {
        match text::trim(written) {
            b"mend" => Ok(Self::Start { mends: true }),
            word => Ok(match Command::parse(word)? {
                Command::Start => Self::Start { mends: false },
                Command::Stop => Self::Stop,
            }),
        }
    }
}
