// SPDX-License-Identifier: GPL-2.0

//! I/O fencing: a chunk is used on one path at a time, although all paths of a session share its
//! memory.
//!
//! A client that gives up a path sends the requests that were in flight there again on another one,
//! in the same chunks. A request for a chunk that is busy on another path therefore means that the
//! client has given up that path. The server closes the other path, so that it serves nothing more
//! from it, and defers the request until the other path has ended (decision 0006).
//!
//! The cost where a session has one path: a read of [`Fencing::has_peers`] for each request. Where
//! it has more, each request adds its path to the chunk's [`Carriers`], and looks at the other
//! paths only if it is not the first (decision 0038).

use core::{
    mem,
    ptr, //
};

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};
use kernel_ext::{
    new_irq_lock,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::{
                Relaxed,
                SeqCst, //
            },
        },
        IrqLock,
        RcuArc, //
    },
};
use rtrs_core::proto::fence::{
    look,
    Carriers,
    Look, //
};

use crate::server::{
    io::{
        request::RequestContext, //
        send_queue::RequestList,
    }, //
    path::{
        error::PathError,
        Path, //
    },
};

/// The state of I/O fencing of one path.
#[pin_data]
pub(crate) struct Fencing {
    /// Whether the session has other paths that carry requests.
    has_peers: AtomicBool,
    /// Requests that are deferred until their chunk is free on the other paths.
    #[pin]
    deferred: IrqLock<RequestList>,
}

impl Fencing {
    /// Returns the state of a path that is alone in its session.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            has_peers: AtomicBool::new(false),
            deferred <- new_irq_lock!(RequestList::new(), "Fencing::deferred"),
        })
    }

    /// Returns whether the session has other paths that carry requests.
    #[inline(always)]
    pub(crate) fn has_peers(&self) -> bool {
        self.has_peers.load(Relaxed)
    }

    /// Takes all deferred requests.
    fn take_deferred(&self) -> RequestList {
        mem::replace(&mut *self.deferred.lock(), RequestList::new())
    }
}

/// The paths of a session that may use the same chunks: from before the client gets the keys until
/// the last request has ended. An entry whose path has left is empty.
pub(crate) type Members = KVec<RcuArc<Path>>;

/// Adds `path` to the members of its session. Sleeps.
///
/// No request can come on it before: its client does not know the chunks' keys.
pub(crate) fn enter(path: &Arc<Path>) -> Result {
    let session = &path.session;
    let _changing = session.membership.lock();
    let mut members = Members::new();
    if let Some(old) = session.members.get() {
        for member in old.iter().filter_map(RcuArc::get) {
            members.push(RcuArc::new(Some(member)), GFP_KERNEL)?;
        }
    }
    members.push(RcuArc::new(Some(path.clone())), GFP_KERNEL)?;
    let members = Arc::new(members, GFP_KERNEL)?;
    tell(&members);
    // Who has read before that it has no peers has taken its context before, too. So a request of
    // this path finds it by the doubt.
    for carriers in session.carriers() {
        carriers.doubt();
    }
    // A reader of the old list does not find this path's requests; there are none until the
    // grace period that this waits for is over.
    drop(session.members.replace(Some(members)));
    Ok(())
}

/// Removes `path`, whose requests have all ended, from the members: no other path reads its chunks'
/// states after this. Sleeps.
pub(crate) fn leave(path: &Arc<Path>) {
    let session = &path.session;
    let _changing = session.membership.lock();
    let Some(members) = session.members.get() else {
        return;
    };
    for member in members.iter() {
        if member.get().is_some_and(|other| Arc::ptr_eq(&other, path)) {
            drop(member.replace(None));
        }
    }
    tell(&members);
}

/// Stores in each member whether there are others.
fn tell(members: &Members) {
    let count = members.iter().filter_map(RcuArc::get).count();
    for member in members.iter().filter_map(RcuArc::get) {
        member.fencing.has_peers.store(count > 1, SeqCst);
    }
}

/// Returns whether another path carries a request in chunk `id`, whose context the caller has just
/// taken on `path`. Paths that do are closed. Any context.
///
/// Of two requests that come at the same time at least one finds the other: each takes its context
/// before it looks for the other's.
#[cold]
pub(crate) fn is_contested(path: &Arc<Path>, id: u16) -> bool {
    let guard = rcu::read_lock();
    let Some(members) = path.session.members.read(&guard) else {
        return false;
    };
    let mut contested = false;
    for member in members.iter() {
        let Some(other) = member.read(&guard) else {
            continue;
        };
        let busy = other
            .chunks
            .chunk_state(id)
            .is_some_and(|chunk_state| chunk_state.free.is_empty());
        if busy && !ptr::eq(other, &**path) {
            contested = true;
            give_up(member, &guard, path, id);
        }
    }
    if let (false, Some(chunk_state)) = (contested, path.chunks.chunk_state(id)) {
        chunk_state.carriers.trust();
    }
    contested
}

/// Closes the path of `member`.
#[cold]
fn give_up(member: &RcuArc<Path>, guard: &rcu::Guard, path: &Path, id: u16) {
    // Not the last reference: that of the list is dropped only after a grace period.
    if let Some(other) = member.get_with(guard) {
        other.fail(PathError::Fenced(id, &path.name));
    }
}

/// Defers the request of `context` until its chunk is free on the other paths. Any context.
#[cold]
pub(crate) fn defer(path: &Arc<Path>, context: KBox<RequestContext>) {
    path.fencing.deferred.lock().push(context);
    // The chunk may have become free before the context was in the queue.
    path.queue_resume();
}

/// Checks the deferred requests of `path` again. Sleeps. Runs once at a time for each path.
pub(crate) fn resume(path: &Arc<Path>) {
    let mut waiting = path.fencing.take_deferred();
    while let Some(context) = waiting.pop() {
        let is_contested = || is_contested(path, context.id);
        match look(Some(Carriers::UNKNOWN), || path.is_up(), is_contested) {
            Look::Serve => serve(context),
            Look::Discard => path.release(context),
            Look::Defer => path.fencing.deferred.lock().push(context),
        }
    }
}

/// Continues with a deferred request.
fn serve(context: KBox<RequestContext>) {
    let connections = context.connections.clone();
    if let Some(connection) = connections.get(context.cid) {
        let offset = context.offset;
        connection
            .qp
            .handler()
            .admit(&connection.qp, context, offset);
    }
}

/// Resumes the other paths, whose requests may wait for a context of `path` that was released while
/// the path is closing. Any context.
#[cold]
pub(crate) fn resume_peers(path: &Path) {
    let guard = rcu::read_lock();
    let Some(members) = path.session.members.read(&guard) else {
        return;
    };
    for member in members.iter() {
        if let Some(other) = member.get_with(&guard) {
            if !ptr::eq(&*other, path) {
                other.queue_resume();
            }
        }
    }
}

/// Releases the deferred requests of `path` at its teardown, when no more come. Sleeps.
///
/// Until it [leaves](leave), another path may have [`resume`] run once more: that finds none.
pub(crate) fn abandon(path: &Arc<Path>) {
    path.stop_resume();
    let mut waiting = path.fencing.take_deferred();
    while let Some(context) = waiting.pop() {
        path.release(context);
    }
}
