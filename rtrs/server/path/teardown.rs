// SPDX-License-Identifier: GPL-2.0

//! Tears a path down in any state of its set-up, and frees it.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::sync::atomic::Ordering::SeqCst;
use rdma::Qp;
use rtrs_core::proto::{
    path::{
        record::Operation,
        ServerEvent, //
    },
    timeouts::UNDRAINED_MS,
    LINK_SETTLE_MS, //
};

use crate::server::path::{
    connections::Connections,
    fence,
    fence_message,
    Path, //
};

/// Tears `path` down. Runs on its work queue, and sleeps until the service has answered all
/// requests of the path. Runs once for each path, and again as long as the device does not flush
/// its connections: until then the client may reach the chunks.
pub(crate) fn tear_down(path: &Arc<Path>) {
    path.did(Operation::TearDown);
    path.stop_ticks();

    // From here on no request comes, and answers are discarded.
    let connections = path.joined();
    if let Some(connections) = &connections {
        let drained = Qp::close_all(connections.iter().map(|connection| &*connection.qp));
        if drained.is_ok() {
            discard(path, connections);
            // Before the client hears that the path is drained, and uses the chunks of messages
            // that it has given up: the service need not answer what is with it.
            close_to_service(path);
            fence_message::drained(path);
        }
        if path.state.has_failed() {
            fsleep(Delta::from_millis(LINK_SETTLE_MS.into()));
        }
        for connection in connections.iter() {
            // It fails for an identifier that is not connected any more; that does not matter here.
            let _ = connection.cm.disconnect();
        }
        if let Err(e) = drained {
            return try_again(path, e);
        }
    }

    // Requests in flight: the service answers them, which releases their contexts.
    if connections.is_none() {
        close_to_service(path);
    }
    path.chunks.wait_until_released();
    // From now on no other path takes an empty chunk state for a request in flight.
    fence::leave(path);
    let contexts = path.chunks.take_released();
    let own = path.connections.lock().take();
    drop(own);

    *path.files.lock() = None;
    if path.counted.swap(false, SeqCst) {
        path.session.link_down();
    }

    // With the last reference to the connections the queue pairs are freed, and with them their
    // references to the path: after a grace period, since the code that answered the last requests
    // may still run.
    drop(contexts);
    drop(connections);
    path.step(ServerEvent::TornDown);
    path.did(Operation::Release);
    path.session.registry.remove(path);
}

/// Has the service drop what it need not answer any more.
fn close_to_service(path: &Path) {
    if let Some(service) = path.service() {
        service.path_closing();
    }
}

/// Discards the requests of drained connections that are not with the service.
fn discard(path: &Arc<Path>, connections: &Connections) {
    // Their invalidation is over, as all work requests are; where a completion queue has
    // overflowed, its completion is lost.
    for chunk_state in path.chunks.chunk_states() {
        if let Some(context) = chunk_state.armed.take() {
            path.release(context);
        }
    }
    for connection in connections.iter() {
        let send_queue = &connection.qp.handler().send_queue;
        while let Some(context) = send_queue.next_waiting() {
            path.release(context);
        }
    }
    fence::abandon(path);
}

/// Begins the teardown anew after a while; the path keeps all it has.
#[cold]
fn try_again(path: &Arc<Path>, error: Error) {
    if !path.is_undrained.swap(true, SeqCst) {
        pr_err!(
            "{}: the device does not end the work requests of the path ({:?}), or a disk does not \
             take the requests that came on it: trying on\n",
            path.label(),
            error
        );
    }
    path.did(Operation::TearDownIn {
        pause_ms: UNDRAINED_MS,
    });
    path.tick_in(UNDRAINED_MS);
}
