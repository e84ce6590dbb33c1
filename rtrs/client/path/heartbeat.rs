// SPDX-License-Identifier: GPL-2.0

//! A path's heartbeat: its state, and the periodic work item.

use kernel::{
    sync::{
        rcu,
        Arc, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel_ext::workqueue;
use rtrs_core::proto::{
    heartbeat::{
        self,
        Heartbeat,
        Tick, //
    },
    imm::Imm,
    recovery::record::Operation, //
};

use crate::client::path::{
    error::PathError,
    Path,
    HEARTBEAT, //
};

/// The time at which the peer last sent something, and how quickly it answers.
pub(crate) struct Liveness {
    /// Ticks since the peer last sent something.
    missed: AtomicU32,
    /// The time at which the last heartbeat was sent, in nanoseconds since `born`.
    sent_ns: AtomicU64,
    /// The round trip time of the last heartbeat, in nanoseconds; 0 before the first answer.
    latency_ns: AtomicU64,
    born: Instant<Monotonic>,
}

impl Liveness {
    pub(crate) fn new() -> Self {
        Self {
            missed: AtomicU32::new(0),
            sent_ns: AtomicU64::new(0),
            latency_ns: AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(0)
    }

    /// Resets the state for a new connect.
    pub(crate) fn restart(&self) {
        self.missed.store(0, Ordering::Relaxed);
        self.latency_ns.store(0, Ordering::Relaxed);
    }

    /// Records that the peer has sent something.
    #[inline]
    pub(crate) fn heard(&self) {
        // Most often it is 0, and the cache line stays shared.
        if self.missed.load(Ordering::Relaxed) != 0 {
            self.missed.store(0, Ordering::Relaxed);
        }
    }

    /// Records that the peer has answered a heartbeat.
    #[cold]
    pub(crate) fn acknowledged(&self) {
        let sent_ns = self.sent_ns.load(Ordering::Relaxed);
        self.latency_ns.store(
            heartbeat::latency_ns(sent_ns, self.now_ns()),
            Ordering::Relaxed,
        );
    }

    /// Returns how long the last answer took; `None` before the first.
    #[inline]
    pub(crate) fn latency_ns(&self) -> Option<u64> {
        match self.latency_ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some(ns),
        }
    }
}

impl Path {
    /// Starts the heartbeat, which runs until the path is closed.
    pub(crate) fn start_heartbeat(self: &Arc<Self>) {
        self.did(Operation::StartHeartbeat);
        self.liveness.restart();
        self.session.refresh_routes();
        workqueue::mod_delayed::<_, HEARTBEAT>(self.clone(), self.heartbeat().interval_ms);
    }

    /// Returns the current settings of the heartbeat.
    fn heartbeat(&self) -> Heartbeat {
        self.session.settings.snapshot().heartbeat()
    }

    /// Runs one tick.
    pub(crate) fn beat(this: Arc<Self>) {
        let liveness = &this.liveness;
        let heartbeat = this.heartbeat();
        let (missed, tick) = heartbeat.tick(liveness.missed.load(Ordering::Relaxed));
        liveness.missed.store(missed, Ordering::Relaxed);
        match tick {
            // The server's adapter may have acknowledged requests that its software has not seen.
            Tick::Dead => return this.abandon(PathError::Heartbeat),
            Tick::Wait => {}
            Tick::Send => {
                liveness.sent_ns.store(liveness.now_ns(), Ordering::Relaxed);
                let guard = rcu::read_lock();
                let Some(connections) = this.connections.read(&guard) else {
                    return;
                };
                if let Err(e) = connections.send_admin_imm(Imm::Heartbeat) {
                    drop(guard);
                    return this.fail(PathError::Post(e));
                }
            }
        }
        if this.is_connected() {
            this.session.look_after_chunks();
            workqueue::mod_delayed::<_, HEARTBEAT>(this, heartbeat.interval_ms);
        }
    }
}
