// SPDX-License-Identifier: GPL-2.0

//! The settings that a seed draws before a run.

use fastrand::Rng;
use proto::rtrs::{
    heartbeat::Heartbeat,
    outage::FastIoFail,
    policy::Policy, //
};

use crate::{
    event::{
        MS,
        S, //
    },
    faults::Kind, //
};

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
    /// The client ends no path for held chunks while requests are in flight that may fail for it.
    HoldBackForEver,
    /// The client waits for held chunks only as long as an administrator tries to map a device.
    ForgetDevice,
    /// The client forgets which paths a request has tried.
    LoseTried,
    /// The client forgets what was in flight on a path that failed.
    NoFailOver,
    /// The client goes on counting attempts after a success.
    NoBackoffReset,
    /// The client goes on after an outage without opening its devices again.
    NoReopen,
    /// The client waits for an answer without end.
    NoRequestTimeout,
    /// The server answers before the data is on the disk.
    AnswerEarly,
    /// The client sends no heartbeats.
    NoHeartbeat,
    /// The client uses a path that is connected while others are without asking its server.
    NoValidation,
    /// The client does not compare the boots of the server's machine.
    IgnoreBoot,
    /// The client takes an acknowledged flush to cover the writes after it as well.
    FlushCoversLater,
    /// The server acknowledges a flush without one.
    IgnoreFlush,
    /// The server does not force a write to the medium that is to be.
    IgnoreFua,
    /// The client goes on with a device that the server has closed, under its new number.
    ValidationAdopts,
    /// The server gives the number of a device that it has closed to the next one.
    ReuseNumber,
    /// The client opens and closes devices while others are opened, closed and validated, and
    /// closes what a validation has opened although an outage began since.
    NoLock,
    /// The client uses a number although a lost CLOSE of it may still reach the server.
    NoDoubts,
    /// The client uses the device's number of before an outage.
    OldNumber,
    /// The client sends a lost request again without a limit.
    NoResendLimit,
    /// The server answers without room on its send queue.
    IgnoreRoom,
    /// The server forgets the answers that wait for room.
    ForgetWaiting,
    /// The client goes on with the chunk's old key.
    OldKey,
    /// The server registers no new key for an answer that waited for room.
    NoKeyAfterWait,
    /// The server takes the same chunk of two clients for one.
    MixSessions,
    /// The server closes the devices of all sessions with one.
    CloseAll,
    /// The client sends lost requests again without a fence message.
    NoFence,
    /// The server answers a fence message without closing the path that it names.
    FencedEarly,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 38] = [
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
        Self::HoldBackForEver,
        Self::ForgetDevice,
        Self::LoseTried,
        Self::NoFailOver,
        Self::NoBackoffReset,
        Self::NoReopen,
        Self::NoRequestTimeout,
        Self::AnswerEarly,
        Self::NoHeartbeat,
        Self::NoValidation,
        Self::IgnoreBoot,
        Self::FlushCoversLater,
        Self::IgnoreFlush,
        Self::IgnoreFua,
        Self::ValidationAdopts,
        Self::ReuseNumber,
        Self::NoLock,
        Self::NoDoubts,
        Self::OldNumber,
        Self::NoResendLimit,
        Self::IgnoreRoom,
        Self::ForgetWaiting,
        Self::OldKey,
        Self::NoKeyAfterWait,
        Self::MixSessions,
        Self::CloseAll,
        Self::NoFence,
        Self::FencedEarly,
    ];
}

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a timeline.
    pub trace: bool,
    /// The server does not know the fence message, and packets of a given-up connection may arrive
    /// after the request was sent again and received: the hole that protocol 2.0 leaves (decision
    /// 0006).
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
    pub(crate) clients: usize,
    /// Whether each device has a volatile cache.
    pub(crate) volatile: Vec<bool>,
    /// The server invalidates the key of a written chunk, and each answer brings the next one.
    pub(crate) always_invalidate: bool,
    /// Answers that the send queue of a server's connection has room for.
    pub(crate) send_room: u32,
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
    /// The server knows the fence message; a C server does not.
    pub(crate) knows_fences: bool,
    /// The server's adapter takes packets and acknowledges them while the server is frozen.
    pub(crate) adapter_acks: bool,
    /// One in so many packets that are lost was only held up.
    pub(crate) late_one_in: u32,
    /// The faults of this run: a few kinds, so that rare combinations get their turn.
    pub(crate) kinds: Vec<Kind>,
    /// Requests that the application submits at once.
    pub(crate) burst: u32,
    /// Mean pause between two bursts.
    pub(crate) app_pause_us: u64,
    /// Mean pause between two faults.
    pub(crate) fault_pause_us: u64,
    /// The time when faults stop.
    pub(crate) calm_us: u64,
    /// The application goes on after that until every device is open.
    pub(crate) is_busy: bool,
    /// Pause before an administrator tries again to map a device.
    pub(crate) map_pause_us: u64,
}

fn draw_heartbeat(rng: &mut Rng) -> Heartbeat {
    match rng.u32(0..3) {
        0 => Heartbeat::DEFAULT,
        _ => Heartbeat {
            interval_ms: rng.u32(200..=2000),
            missed_max: rng.u32(2..=5),
        },
    }
}

fn draw_fast_io_fail(rng: &mut Rng) -> FastIoFail {
    match rng.u32(0..10) {
        0 => FastIoFail::After(0),
        1..=3 => FastIoFail::After(rng.u32(1..=20)),
        4 => FastIoFail::Off,
        _ => FastIoFail::DEFAULT,
    }
}

impl Settings {
    pub(crate) fn draw(rng: &mut Rng, options: Options) -> Self {
        // Another generator: a run of peers of protocol 2.0 does not change with it.
        let mut own = Rng::with_seed(rng.clone().u64(..));
        let mut settings = Self::draw_all_but_fences(rng, options);
        settings.knows_fences = own.bool() && !options.late_packets;
        if settings.knows_fences && own.u32(0..5) < 2 {
            settings.kinds.push(Kind::Stall);
        }
        settings.draw_doubts(&mut own);
        settings
    }

    /// A CLOSE that is lost on a path that is removed then: a device waits for the end of the
    /// session, on a session that is never without IO, or an administrator seldom tries.
    fn draw_doubts(&mut self, own: &mut Rng) {
        if own.u32(0..6) != 0 {
            return;
        }
        self.kinds = vec![Kind::Cut, Kind::Unmap, Kind::Unmap, Kind::Remove];
        self.wires = 3;
        // A CLOSE that was held up arrives when its number is used again.
        self.late_one_in = 1;
        match own.u32(0..4) {
            0 => self.map_pause_us = 70 * S,
            1 => {}
            _ => {
                self.is_busy = true;
                (self.burst, self.app_pause_us) = (8, 2 * MS);
                self.volatile.resize(2, false);
                self.fast_io_fail = FastIoFail::After(own.u32(0..=10));
            }
        }
    }

    fn draw_all_but_fences(rng: &mut Rng, options: Options) -> Self {
        let kinds: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|_| rng.u32(0..5) < 2)
            .collect();
        // A server that does not answer for long, so that requests are lost again and again.
        let is_patient = rng.u32(0..40) == 0;
        let has_bursts = rng.u32(0..6) == 0;
        Self {
            options,
            wires: rng.usize(1..=3).max(1 + usize::from(is_patient)),
            connections: rng.u16(2..=3),
            queue_depth: rng.u16(4..=20),
            blocks: rng.usize(3..=16),
            clients: 1 + usize::from(rng.u32(0..3) == 0),
            volatile: (0..rng.usize(1..=2)).map(|_| rng.bool()).collect(),
            always_invalidate: rng.bool(),
            send_room: rng.u32(1..=8),
            policy: Policy::from_u8(rng.u8(0..3)).unwrap_or_default(),
            fast_io_fail: draw_fast_io_fail(rng),
            scheduler: rng.bool(),
            reconnect_delay_ms: rng.u32(100..=2000),
            max_reconnect_attempts: match rng.u32(0..10) {
                0 => 0,
                1..=3 => rng.i32(1..=20),
                _ => -1,
            },
            heartbeat: draw_heartbeat(rng),
            server_heartbeat: match rng.bool() {
                true => Heartbeat::DEFAULT,
                false => Heartbeat {
                    interval_ms: 1000,
                    missed_max: 4,
                },
            },
            request_timeout_us: match is_patient {
                true => S,
                false => rng.u64(2..=15) * S,
            },
            knows_fences: false,
            adapter_acks: rng.bool(),
            late_one_in: rng.u32(1..=20),
            kinds: match kinds.is_empty() {
                _ if is_patient => vec![Kind::Mute],
                true => vec![Kind::Cut],
                false => kinds,
            },
            burst: if has_bursts { 8 } else { 1 },
            app_pause_us: match has_bursts {
                true => rng.u64(100 * MS..=S),
                false => rng.u64(MS..=40 * MS),
            },
            fault_pause_us: match is_patient {
                true => 20 * S,
                false => rng.u64(S / 4..=3 * S),
            },
            // Now and then long enough for the server's heartbeat, which takes half a minute.
            calm_us: S * match rng.u32(0..12) {
                _ if is_patient => 90,
                0 => rng.u64(60..=90),
                _ => rng.u64(8..=25),
            },
            is_busy: false,
            map_pause_us: S / 2,
        }
    }

    pub(crate) fn broken(&self, mutation: Mutation) -> bool {
        self.options.mutation == Some(mutation)
    }
}
