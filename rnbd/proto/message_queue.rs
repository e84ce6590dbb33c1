// SPDX-License-Identifier: GPL-2.0

//! The message queues of a server: which messages of a client wait for each other, and the limits
//! on the number of queues.
//!
//! The messages about one device name have a queue, and a queue has a thread of the server, which
//! a device that does not answer blocks. So a client gets a few of them, and all clients together
//! fewer than the server has threads: the messages of a session for which there is no queue are
//! answered one at a time, and wait for each other only.

/// The maximum number of queues of a session.
pub const OF_SESSION_MAX: usize = 41;

/// The maximum number of queues of a session with which a CLOSE that no client has sent takes one
/// more. The others are for those of the client, which has 8 under way at most: so they wait for no
/// silent device.
const UNTOLD_MAX: usize = OF_SESSION_MAX - 8;

/// The maximum number of queues of a session with which an OPEN takes one more. One place is left,
/// so that a client whose disks are all silent does not keep others from what is open for no one.
const OPENS_MAX: usize = UNTOLD_MAX - 1;

/// The maximum number of queues of all sessions. Their work queue runs 2048 items at a time
/// (`WQ_MAX_ACTIVE`), which the kernel shares out among NUMA nodes; the sessions' own items have
/// another one.
const OF_SERVER_MAX: u32 = 256;

/// The number of queues of all sessions from which on a message that may be refused takes none.
/// Silent devices of a few clients would else have all: those of the next client would block its
/// session.
const REFUSED_FROM: u32 = OF_SERVER_MAX - 64;

/// Returns whether a session may take one more queue while all sessions together have `in_use`.
/// `may_refuse` is as for [`place`].
pub const fn is_free(in_use: u32, may_refuse: bool) -> bool {
    let limit = if may_refuse {
        REFUSED_FROM
    } else {
        OF_SERVER_MAX
    };
    in_use < limit
}

/// The action of a message in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens the device.
    Open,
    /// Closes the device with this number.
    Close(u32),
    /// Closes it if no client knows of it: see [`told`](super::told).
    CloseUntold(u32),
}

/// The place of a message for whose device there is no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A queue of its own, if the server has one.
    Queue,
    /// The session itself, which answers nothing else meanwhile.
    Session,
    /// None: the client gets `EAGAIN`, and asks again.
    Refused,
}

/// Returns the place of a message of a session of which `busy` queues have messages. `may_refuse`:
/// the client has said how long it waits, and does not have the device open. Others get no answer
/// before that of the device: a C driver would not ask again.
pub const fn place(step: Step, may_refuse: bool, busy: usize) -> Place {
    match step {
        Step::Open if may_refuse && busy >= OPENS_MAX => Place::Refused,
        // It is tried again, and is not to have a place of those for CLOSE.
        Step::CloseUntold(_) if busy >= UNTOLD_MAX => Place::Refused,
        _ if busy >= OF_SESSION_MAX => Place::Session,
        _ => Place::Queue,
    }
}

/// Returns whether a message whose client is gone is not carried out if it waits behind `earlier`
/// ones: an OPEN that no one uses, or a CLOSE of what is closed then. So what a queue keeps of
/// clients that come and go, while its device does not answer, is limited.
pub fn is_stale(step: Step, mut earlier: impl Iterator<Item = Step>) -> bool {
    match step {
        Step::Open => true,
        Step::Close(_) | Step::CloseUntold(_) => earlier.any(|earlier| earlier == step),
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
