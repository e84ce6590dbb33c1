// SPDX-License-Identifier: GPL-2.0

//! A chunk is used on one path at a time, although its memory is shared by all paths of a session.
//!
//! A client that gives a path up sends what was in flight there again on another one, in the same
//! chunks. A request for a chunk that is busy on another path says therefore that its client has
//! given that path up. The other path is closed, so that nothing more is served from it, and the
//! request waits until the other one has ended (decision 0006).
//!
//! What it costs where a session has one path: a look at [`Fencing::has_peers`] for each request.

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

use crate::server::{
    io::{
        request::RequestContext, //
        send_queue::RequestList,
    }, //
    path::Path,
};

/// What I/O fencing keeps for one path.
#[pin_data]
pub(crate) struct Fencing {
    /// The session has other paths that carry requests.
    has_peers: AtomicBool,
    /// Requests that wait until their chunk is free on the other paths.
    #[pin]
    deferred: IrqLock<RequestList>,
}

impl Fencing {
    /// Returns that of a path which is alone.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            has_peers: AtomicBool::new(false),
            deferred <- new_irq_lock!(RequestList::new(), "Fencing::deferred"),
        })
    }

    /// Says whether the session has other paths that carry requests.
    #[inline(always)]
    pub(crate) fn has_peers(&self) -> bool {
        self.has_peers.load(Relaxed)
    }

    /// Takes all requests that wait.
    fn take_deferred(&self) -> RequestList {
        mem::replace(&mut *self.deferred.lock(), RequestList::new())
    }
}

/// The paths of a session whose requests may meet: from before the client is told where the chunks
/// are until the last request has ended. An entry whose path has left is empty.
pub(crate) type Members = KVec<RcuArc<Path>>;

/// Makes `path` one of those that look at each other. Sleeps.
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
    // Whoever still looks into the old list had better not find this path's requests; there are
    // none until the grace period that this waits for is over.
    drop(session.members.replace(Some(members)));
    Ok(())
}

/// Takes `path`, whose requests have all ended, out again: nobody looks at its places after this.
/// Sleeps.
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

/// Tells the members whether there are others.
fn tell(members: &Members) {
    let count = members.iter().filter_map(RcuArc::get).count();
    for member in members.iter().filter_map(RcuArc::get) {
        member.fencing.has_peers.store(count > 1, SeqCst);
    }
}

/// Says whether another path carries a request in chunk `id`, whose slot the caller has just taken
/// on `path`. Those that do are closed. Any context.
///
/// Of two requests that come at the same time at least one finds the other: each takes its slot
/// before it looks for the other's.
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
    contested
}

/// Closes the path of `member`.
#[cold]
fn give_up(member: &RcuArc<Path>, guard: &rcu::Guard, path: &Path, id: u16) {
    // Not the last reference: that of the list is given away only after a grace period.
    if let Some(other) = member.get_with(guard) {
        other.fail(format_args!(
            "client uses chunk {id} on {} before this path has answered",
            path.name
        ));
    }
}

/// Has the request of `context` wait until its chunk is free on the other paths. Any context.
#[cold]
pub(crate) fn defer(path: &Arc<Path>, context: KBox<RequestContext>) {
    path.fencing.deferred.lock().push(context);
    // The chunk may have become free before the slot was there to be found.
    path.queue_resume();
}

/// Looks again at the requests of `path` that wait. Sleeps. Runs once at a time for each path.
pub(crate) fn resume(path: &Arc<Path>) {
    let mut waiting = path.fencing.take_deferred();
    while let Some(context) = waiting.pop() {
        if !path.is_up() {
            path.release(context);
        } else if is_contested(path, context.id) {
            path.fencing.deferred.lock().push(context);
        } else {
            serve(context);
        }
    }
}

/// Goes on with a request where it was stopped.
fn serve(context: KBox<RequestContext>) {
    let connections = context.connections.clone();
    if let Some(connection) = connections.get(context.cid) {
        connection.qp.handler().admit(&connection.qp, context);
    }
}

/// A slot of `path`, which is being closed, has come home: requests on other paths may have waited
/// for that. Any context.
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

/// Ends the requests of `path` that wait: it is being torn down, and no more come. Sleeps.
pub(crate) fn abandon(path: &Arc<Path>) {
    path.stop_resume();
    let mut waiting = path.fencing.take_deferred();
    while let Some(context) = waiting.pop() {
        path.release(context);
    }
}
