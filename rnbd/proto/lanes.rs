// SPDX-License-Identifier: GPL-2.0

//! Which messages of a client wait for each other on the server, and for how many devices at a
//! time others do not.
//!
//! The messages about one device name have a lane, and a lane a thread of the server, which a
//! device that does not answer holds. So a client gets a few of them, and all clients together
//! fewer than the server has threads: the messages of a session for which there is no lane are
//! answered one at a time, and wait for each other only.

/// The number of lanes of a session.
pub const OF_SESSION_MAX: usize = 16;

/// The number of lanes of all sessions. The work queue runs 1024 items at a time
/// (`WQ_DFL_ACTIVE`), and each session needs one more.
const OF_SERVER_MAX: u32 = 256;

/// Returns whether a session may take one more lane, while all sessions have `in_use`.
pub const fn is_free(in_use: u32) -> bool {
    in_use < OF_SERVER_MAX
}

/// What a message of a lane does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens the device.
    Open,
    /// Closes the device with this number.
    Close(u32),
}

/// Returns whether a message whose client is gone is not carried out if it waits behind `earlier`
/// ones: an OPEN that no one uses, or a CLOSE of what is closed then. So what a lane keeps of
/// clients that come and go, while its device does not answer, is limited.
pub fn is_stale(step: Step, mut earlier: impl Iterator<Item = Step>) -> bool {
    match step {
        Step::Open => true,
        Step::Close(_) => earlier.any(|earlier| earlier == step),
    }
}

/// Returns whether two names mean the same device for certain: they differ in empty parts and `.`
/// only. Links are not followed.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    parts(one).eq(parts(other))
}

fn parts(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|c| *c == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
}
