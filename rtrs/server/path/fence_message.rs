// SPDX-License-Identifier: GPL-2.0

//! The fence message: on one path, the client says that it has given up another one, and asks when
//! that is drained (decision 0023).
//!
//! "Drained" means that the queue pairs are, and that what they have received is discarded or with
//! the service. The service may take as long as a disk does; a second copy of such a request waits
//! for it ([`fence`](super::fence)), and no other request does.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering::SeqCst, //
};
use rtrs_core::proto::{
    fence::{
        check,
        BadFence, //
    },
    imm::Imm,
    path::record::Operation, //
};

use crate::server::path::{
    connections::Receiver,
    error::PathError,
    heartbeat,
    Path, //
};

/// The fence message of a path, and whether one about it can be answered.
pub(crate) struct FenceMessage {
    /// The number of the path that the message on this one is about, until it is answered; or 0.
    asked: AtomicU32,
    /// The path is drained.
    is_drained: AtomicBool,
}

impl FenceMessage {
    /// Returns the state of a path without a message, which is not drained.
    pub(crate) const fn new() -> Self {
        Self {
            asked: AtomicU32::new(0),
            is_drained: AtomicBool::new(false),
        }
    }

    /// Has `path` answer a message for whose answer there was no room on the send queue. Any
    /// context.
    pub(super) fn look_again(&self, path: &Arc<Path>) {
        if self.asked.load(SeqCst) != 0 {
            path.queue_fence_answer();
        }
    }
}

/// Handles a fence message about path `number`; a work item answers it. Any context.
#[cold]
pub(crate) fn received(receiver: &Receiver, number: u32) {
    let path = &receiver.path;
    let own = path.life.filter(|_| receiver.cid == 0);
    let asked = &path.fence_message.asked;
    let taken = check(number, own, path.session.last_number()).and_then(|()| {
        asked
            .compare_exchange(0, number, SeqCst, SeqCst)
            .map_err(|_| BadFence::Outstanding)
    });
    match taken {
        Ok(_) => path.queue_fence_answer(),
        Err(bad) => path.fail(PathError::Fence(bad)),
    }
}

/// Answers the fence message of `path`, if there is one, and if the other path is drained. If not,
/// that path is closed, and its teardown has this called again. Sleeps. Runs once at a time for
/// each path.
pub(crate) fn answer(path: &Arc<Path>) {
    let asked = &path.fence_message.asked;
    let number = asked.load(SeqCst);
    if number == 0 || !path.is_up() {
        return;
    }
    let paths = path.session.paths.lock();
    let other = paths.iter().find(|other| other.is_number(number)).cloned();
    drop(paths);
    // A path that is not there any more has ended.
    if let Some(other) = other {
        other.fail(PathError::GivenUp(&path.name));
        if !other.fence_message.is_drained.load(SeqCst) {
            return;
        }
    }
    // Before the answer is sent, which permits the next message.
    asked.store(0, SeqCst);
    let guard = rcu::read_lock();
    let admin = path.connections(&guard).and_then(|c| c.get(0));
    if !admin.is_some_and(|admin| heartbeat::send(&admin.qp, Imm::Fenced(number))) {
        // The next tick tries again.
        asked.store(number, SeqCst);
    }
}

/// Records that the connections of `path` are drained, and what they have received is discarded or
/// with the service; has the messages about it answered. Sleeps.
pub(super) fn drained(path: &Arc<Path>) {
    path.did(Operation::Drained);
    // Before it looks for messages: one that comes later finds it.
    path.fence_message.is_drained.store(true, SeqCst);
    let Some(life) = path.life else {
        return;
    };
    for other in path.session.paths.lock().iter() {
        if other.fence_message.asked.load(SeqCst) == life.number() {
            other.queue_fence_answer();
        }
    }
}
