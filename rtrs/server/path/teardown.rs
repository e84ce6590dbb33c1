// SPDX-License-Identifier: GPL-2.0

//! Taking a path down, whatever state its set-up has reached, and freeing it.

use kernel::{
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::sync::atomic::Ordering::SeqCst;
use rdma::Qp;
use rtrs_core::proto::{
    path::ServerEvent,
    LINK_SETTLE_MS, //
};

use crate::server::path::{
    fence,
    Path, //
};

/// Takes `path` down. Runs once for each path, on its work queue, and sleeps until the service has
/// answered all requests of the path.
pub(crate) fn tear_down(path: &Arc<Path>) {
    path.stop_ticks();

    // From here on nothing new comes, and what is on its way is thrown away.
    let connections = path.joined();
    if let Some(connections) = &connections {
        Qp::drain_all(connections.iter().map(|connection| &*connection.qp));
        if path.has_failed.load(SeqCst) {
            fsleep(Delta::from_millis(LINK_SETTLE_MS.into()));
        }
        for connection in connections.iter() {
            // An id that is not connected any more says so; it does not matter here.
            let _ = connection.cm.disconnect();
        }
        for connection in connections.iter() {
            let send_queue = &connection.qp.handler().send_queue;
            while let Some(context) = send_queue.next_waiting() {
                path.release(context);
            }
        }
    }
    fence::abandon(path);

    // Requests in flight: their slots come home when the service has answered them.
    path.chunks.wait_until_parked();
    // Nobody takes a place that is empty from now on for that of a request.
    fence::leave(path);
    let contexts = path.chunks.take_parked();
    // Whoever answered the last ones may still be at it; this waits for them.
    drop(path.connections.replace(None));

    *path.files.lock() = None;
    if path.counted.swap(false, SeqCst) {
        path.session.link_down();
    }

    // With the last reference to the connections go the queue pairs, and with these what they hold
    // of the path.
    drop(contexts);
    drop(connections);
    path.step(ServerEvent::TornDown);
    path.session.registry.remove(path);
}
