// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a path, in either direction on its admin connection, and the limit on how long
//! the set-up of a path may take.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use rdma::Qp;
use rtrs_core::proto::{
    heartbeat::Tick,
    imm::Imm,
    path::ServerState,
    timeouts,
    CONNECT_TIMEOUT_MS, //
};

use crate::server::{
    io::tag::Tagged,
    module, //
    path::{
        connections::Receiver,
        error::PathError,
        Path, //
    },
};

/// Time until the first tick of a path that is being set up.
pub(crate) const FIRST_TICK_MS: u32 = CONNECT_TIMEOUT_MS;

/// Time between two checks whether the name that a path waits for is free, in milliseconds.
pub(crate) const NAME_TICK_MS: u32 = 100;

/// Whether the client answers.
pub(crate) struct Liveness {
    /// Heartbeats since the client last sent something.
    missed: AtomicU32,
}

impl Liveness {
    /// Returns the state of a client that has just sent something.
    pub(crate) const fn new() -> Self {
        Self {
            missed: AtomicU32::new(0),
        }
    }

    /// Records that the client has sent something. Any context.
    #[inline]
    pub(crate) fn heard(&self) {
        if self.missed.load(Relaxed) != 0 {
            self.missed.store(0, Relaxed);
        }
    }

    /// Returns how many heartbeats the client has left unanswered.
    pub(crate) fn missed(&self) -> u32 {
        self.missed.load(Relaxed)
    }

    /// Counts a heartbeat as sent, if the client has sent something since the last one.
    fn expect_answer(&self) -> bool {
        self.missed.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    }
}

/// Runs one tick of `path`: returns in how many milliseconds the next one is due, if any.
pub(crate) fn tick(path: &Arc<Path>) -> Option<u32> {
    match path.state() {
        ServerState::Connecting => set_up_tick(path),
        ServerState::Connected => beat(path),
        ServerState::Closing => {
            // The teardown has asked for it.
            path.queue_work();
            None
        }
        ServerState::Closed => None,
    }
}

/// Fails a path whose client neither adds connections nor sends the info request, or takes too long
/// for all of it, so that it does not keep the memory for ever.
fn set_up_tick(path: &Arc<Path>) -> Option<u32> {
    let left = timeouts::set_up_left_ms(path.idle_ms(), path.age_ms());
    match left {
        Ok(_) => path.set_up_again(),
        Err(passed_ms) => path.fail(PathError::SetUpTimeout(passed_ms)),
    }
    left.ok()
}

fn beat(path: &Arc<Path>) -> Option<u32> {
    let heartbeat = module::heartbeat();
    path.fence_message.look_again(path);
    let (missed, tick) = heartbeat.tick(path.liveness.missed());
    path.liveness.missed.store(missed, Relaxed);
    match tick {
        Tick::Dead => {
            path.fail(PathError::Heartbeat);
            return None;
        }
        Tick::Wait => {}
        Tick::Send => {
            let guard = rcu::read_lock();
            let admin = path.connections(&guard).and_then(|c| c.get(0));
            if !admin.is_some_and(|admin| send(&admin.qp, Imm::Heartbeat)) {
                // No heartbeat was sent, so none was missed: the next tick sends one.
                path.liveness.heard();
            }
        }
    }
    Some(heartbeat.interval_ms)
}

/// Sends a heartbeat to the client of `path`, unless one is unanswered: [`Liveness::missed`] is
/// not 0 until the client sends something. Any context.
pub(crate) fn ask(path: &Arc<Path>) {
    let asked = path.liveness.expect_answer();
    let guard = rcu::read_lock();
    let connections = path.connections(&guard).filter(|_| asked && path.is_up());
    if let Some(admin) = connections.and_then(|c| c.get(0)) {
        let _ = send(&admin.qp, Imm::Heartbeat);
    }
}

/// Answers a heartbeat.
#[cold]
pub(crate) fn acknowledge(qp: &Qp<Receiver>) {
    let _ = send(qp, Imm::HeartbeatAck);
}

/// Sends an empty message with `imm`; returns whether it did. Without room on the send queue none
/// is sent: the answers that fill the queue show the client that the server is up.
pub(super) fn send(qp: &Qp<Receiver>, imm: Imm) -> bool {
    let receiver = qp.handler();
    if !receiver.path.is_up() {
        return false;
    }
    let Some(flags) = receiver.send_queue.reserve() else {
        return false;
    };
    let mut space = rdma::WrBuffer::new();
    let mut batch = qp.batch::<1, 0>(&mut space);
    batch.empty_write_imm(Tagged::Io.encode(), imm.encode(), flags);
    if let Err(e) = batch.post() {
        receiver.path.fail(PathError::Post("heartbeat", e));
        return false;
    }
    true
}
