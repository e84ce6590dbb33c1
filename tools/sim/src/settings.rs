// SPDX-License-Identifier: GPL-2.0

//! The settings that a seed draws before a run.

use fastrand::Rng;
use proto::rtrs::{
    heartbeat::Heartbeat,
    outage::FastIoFail,
    policy::Policy, //
};

use crate::faults::Kind;

/// A mutation of the model, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The client sends requests in flight again while the old queue pair still works.
    SkipDrain,
    /// The server serves a request although its chunk is in flight on another path.
    ForgetChunkFence,
    /// The server ignores the requests in flight on a path that is being closed.
    FenceOnlyLive,
    /// The server admits a path again before its predecessor is drained.
    ForgetReconnectFence,
    /// The client gives a request that it sends again another chunk.
    ReuseChunkEarly,
    /// The client uses the chunk of a request that failed unanswered at once.
    NoQuarantine,
    /// The client uses the chunk of a lost request when any path is connected anew.
    AnyPathEndsQuarantine,
    /// The client uses the chunk of a lost request when its path is removed.
    RemovalEndsQuarantine,
    /// The client submits a lost request again in the chunk of its new tag.
    AnotherChunkAgain,
    /// The client waits for a path that does not reconnect.
    NeverAskServer,
    /// The client forgets which paths a request has tried.
    LoseTried,
    /// The client forgets what was in flight on a path that failed.
    NoFailOver,
    /// The client goes on counting attempts after a success.
    NoBackoffReset,
    /// The client never opens the device again.
    NoReopen,
    /// The client opens the device again only after it had no path at all.
    ReopenAfterOutageOnly,
    /// The client waits for an answer without end.
    NoRequestTimeout,
    /// The server answers before the data is on the disk.
    AnswerEarly,
    /// The client sends no heartbeats.
    NoHeartbeat,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::SkipDrain,
        Self::ForgetChunkFence,
        Self::FenceOnlyLive,
        Self::ForgetReconnectFence,
        Self::ReuseChunkEarly,
        Self::NoQuarantine,
        Self::AnyPathEndsQuarantine,
        Self::RemovalEndsQuarantine,
        Self::AnotherChunkAgain,
        Self::NeverAskServer,
        Self::LoseTried,
        Self::NoFailOver,
        Self::NoBackoffReset,
        Self::NoReopen,
        Self::ReopenAfterOutageOnly,
        Self::NoRequestTimeout,
        Self::AnswerEarly,
        Self::NoHeartbeat,
    ];
}

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a timeline.
    pub trace: bool,
    /// Let packets of a given-up connection arrive after the request was sent again and received:
    /// the hole that the protocol leaves (decision 0006).
    pub late_packets: bool,
    /// Break the model.
    pub mutation: Option<Mutation>,
}

/// The settings of one run.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) options: Options,
    pub(crate) wires: usize,
    /// Connections of a path, the admin one included.
    pub(crate) connections: u16,
    pub(crate) queue_depth: u16,
    pub(crate) blocks: usize,
    pub(crate) policy: Policy,
    pub(crate) fast_io_fail: FastIoFail,
    /// The block layer gives a request that is started again another tag.
    pub(crate) scheduler: bool,
    pub(crate) reconnect_delay_ms: u32,
    pub(crate) max_reconnect_attempts: i32,
    pub(crate) heartbeat: Heartbeat,
    /// The server's heartbeat: the C driver's, or ours.
    pub(crate) server_heartbeat: Heartbeat,
    pub(crate) request_timeout_us: u64,
    /// The server's adapter takes packets and acknowledges them while the server is frozen.
    pub(crate) adapter_acks: bool,
    /// One in so many packets that are lost was only held up.
    pub(crate) late_one_in: u32,
    /// The faults of this run: a few kinds, so that rare combinations get their turn.
    pub(crate) kinds: Vec<Kind>,
    /// Mean pause between two requests.
    pub(crate) app_pause_us: u64,
    /// Mean pause between two faults.
    pub(crate) fault_pause_us: u64,
    /// When faults stop.
    pub(crate) calm_us: u64,
}

impl Settings {
    pub(crate) fn draw(rng: &mut Rng, options: Options) -> Self {
        use crate::event::{
            MS,
            S, //
        };

        let kinds: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|_| rng.u32(0..5) < 2)
            .collect();
        Self {
            options,
            wires: rng.usize(1..=3),
            connections: rng.u16(2..=3),
            queue_depth: rng.u16(4..=20),
            blocks: rng.usize(3..=16),
            policy: Policy::from_u8(rng.u8(0..3)).unwrap_or_default(),
            fast_io_fail: match rng.u32(0..10) {
                0 => FastIoFail::After(0),
                1..=3 => FastIoFail::After(rng.u32(1..=20)),
                4 => FastIoFail::Off,
                _ => FastIoFail::DEFAULT,
            },
            scheduler: rng.bool(),
            reconnect_delay_ms: rng.u32(100..=2000),
            max_reconnect_attempts: match rng.u32(0..10) {
                0 => 0,
                1..=3 => rng.i32(1..=20),
                _ => -1,
            },
            heartbeat: match rng.u32(0..3) {
                0 => Heartbeat::DEFAULT,
                _ => Heartbeat {
                    interval_ms: rng.u32(200..=2000),
                    missed_max: rng.u32(2..=5),
                },
            },
            server_heartbeat: match rng.bool() {
                true => Heartbeat::DEFAULT,
                false => Heartbeat {
                    interval_ms: 1000,
                    missed_max: 4,
                },
            },
            request_timeout_us: rng.u64(2..=15) * S,
            adapter_acks: rng.bool(),
            late_one_in: rng.u32(1..=20),
            kinds: if kinds.is_empty() {
                vec![Kind::Cut]
            } else {
                kinds
            },
            app_pause_us: rng.u64(MS..=40 * MS),
            fault_pause_us: rng.u64(S / 4..=3 * S),
            // Now and then long enough for the server's heartbeat, which takes half a minute.
            calm_us: S * match rng.u32(0..12) {
                0 => rng.u64(60..=90),
                _ => rng.u64(8..=25),
            },
        }
    }

    pub(crate) fn broken(&self, mutation: Mutation) -> bool {
        self.options.mutation == Some(mutation)
    }
}
