// SPDX-License-Identifier: GPL-2.0

//! The records that a driver writes of a path's recovery.

use ferro_proto::{
    record::Machine,
    words, //
};

use super::{
    Action,
    Effects,
    Event,
    Outcome,
    Pauses,
    Recovery,
    StaleConnection,
    TearDown, //
};

/// The next action of a driver for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Starts the timer of the next attempt.
    StartIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Queues a run of the teardown worker for later.
    TearDownIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Queues a run of the teardown worker.
    QueueTearDown,
    /// Tells the session that the path has no attempts left.
    LeaveSession,
    /// Aborts the resolution of the peer's address.
    GiveUpAddress,
    /// Aborts the attempt that is under way.
    AbortConnect,
    /// Makes an attempt to connect.
    Connect,
    /// Admits IO to the path.
    GoLive,
    /// Starts the heartbeat.
    StartHeartbeat,
    /// Disconnects the stale connection.
    Disconnect,
    /// Drops the stale connection.
    Drop,
    /// Removes the path from its session.
    Release,
    /// Runs the teardown worker, with what [`Recovery::begin_tear_down`] has granted.
    TearDown(Option<TearDown>),
}

impl Machine for Recovery {
    const NAME: &'static str = "path";
    type Event = Event;
    type Effect = Effects;
    type Operation = Operation;

    fn handle(&mut self, event: Event) -> Effects {
        self.step(event)
    }
}

words!(struct Recovery {
    state,
    life,
    is_torn_down,
    was_up,
    has_stale_connection,
    is_device_gone,
    is_wanted,
    is_abandoned,
    is_closed_for_good,
    backoff,
    silent,
});

words!(struct Effects { action, stale_connection });

words!(struct Pauses { delay_ms_max, attempts_max, least_ms, random });

words!(enum Event {
    1 => Lost { life },
    2 => Abandoned,
    3 => DeviceGone { life },
    4 => RetryNow,
    5 => Reconnect,
    6 => Start,
    7 => Established,
    8 => AttemptFailed { outcome, took_ms, pauses },
    9 => TornDown { run, kept, pauses },
    10 => Undrained,
    11 => Close,
    12 => Remove,
    13 => CloseForGood,
});

words!(enum Outcome { 0 => Silence, 1 => Refused, 2 => Other });

words!(enum TearDown { 1 => ToConnectAgain, 2 => ToLeaveDevice, 3 => ForGood });

words!(enum StaleConnection { 0 => Leave, 1 => Disconnect, 2 => Drop });

words!(enum Action {
    0 => Ignore,
    1 => Busy,
    2 => GoLive,
    3 => AbortConnect,
    4 => LookAgain,
    5 => TearDown,
    6 => LeaveDevice,
    7 => GiveUp,
    8 => TearDownIn { pause_ms },
    9 => StartIn { pause_ms },
    10 => Connect,
    11 => AnnounceClosed,
    12 => Release,
});

words!(enum Operation {
    1 => StartIn { pause_ms },
    2 => TearDownIn { pause_ms },
    3 => QueueTearDown,
    4 => LeaveSession,
    5 => GiveUpAddress,
    6 => AbortConnect,
    7 => Connect,
    8 => GoLive,
    9 => StartHeartbeat,
    10 => Disconnect,
    11 => Drop,
    12 => Release,
    13 => TearDown(run),
});
