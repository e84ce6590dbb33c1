// SPDX-License-Identifier: GPL-2.0

//! The events of a client's path.

use super::TearDown;

/// The settings for a delay, and a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// `reconnect_delay`, in milliseconds.
    pub delay_ms_max: u32,
    /// `max_reconnect_attempts`; negative: unlimited.
    pub attempts_max: i32,
    /// The minimum delay, in milliseconds.
    pub least_ms: u32,
    /// A random number.
    pub random: u32,
}

/// The result of a failed attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A peer with a resolved address did not answer in time.
    Silence,
    /// The server rejected it: it may still have an earlier life.
    Refused,
    /// Another error.
    Other,
}

/// The events of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection, a work request or the heartbeat of `life` has failed; `None`: of the current
    /// life.
    Lost {
        /// The life of the event.
        life: Option<u16>,
    },
    /// The client abandons a path that may work: a request has timed out.
    Abandoned,
    /// A device is being removed: the one under a connection of `life`; `None`: any device.
    DeviceGone {
        /// The life of the event.
        life: Option<u16>,
    },
    /// A change that may be for the better: a port is up, a device has come.
    RetryNow,
    /// An administrator wants the path connected again, in any state.
    Reconnect,
    /// The delay is over.
    Start,
    /// The last connection is up and the info response was accepted.
    Established,
    /// A reconnect attempt has failed, and was torn down.
    AttemptFailed {
        /// The result.
        outcome: Outcome,
        /// The duration, which is subtracted from the delay.
        took_ms: u32,
        /// The settings for the next delay.
        pauses: Pauses,
    },
    /// The run that [`Recovery::begin_tear_down`] granted is complete: no connection is left.
    TornDown {
        /// The granted run.
        run: TearDown,
        /// The driver has kept a stale connection; only in a run to connect again.
        kept: bool,
        /// The settings for the next delay.
        pauses: Pauses,
    },
    /// The device has not flushed a connection, so the run that [`Recovery::begin_tear_down`]
    /// granted has ended before it could release anything.
    ///
    /// [`Recovery::begin_tear_down`]: super::Recovery::begin_tear_down
    Undrained,
    /// The path must be closed; an administrator may want it connected again.
    Close,
    /// The path must be closed, and is never connected again: it is to be removed.
    CloseForGood,
    /// A closed path must be removed from its session.
    Remove,
}
