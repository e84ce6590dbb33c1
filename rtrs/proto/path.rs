// SPDX-License-Identifier: GPL-2.0

//! The state machines of a path, on either side: `step(state, event)` returns the next state and
//! the action.
//!
//! The drivers keep the state under their own lock, call `step` for each event, store the new
//! state, and carry out the action after the lock is released. An event that arrives late, or
//! twice, has no effect.

pub mod record;

use core::fmt;

/// The state of a client's path.
///
/// ```text
///                  Established                Failed, Reconnect
///   Connecting ------------------> Connected -------------------.
///    ^  | Failed                       | Close                  v
///    |  v            Retry             v        Reconnect   Reconnecting
///    |  ConnectingErr ------------> Closing --> Closed ------>  |
///    |                                            | Remove      |
///    '--------------------------- Start ----------|-------------'
///                                                 v
///                                               Dead
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ClientState {
    /// Connections are being made, or the info exchange is under way.
    Connecting = 0,
    /// The set-up failed, and is being torn down.
    ConnectingErr = 1,
    /// The path carries IO.
    Connected = 2,
    /// Torn down, or about to be; will connect again.
    Reconnecting = 3,
    /// The path is being torn down for good.
    Closing = 4,
    /// Torn down; only a `reconnect` through sysfs connects it again.
    Closed = 5,
    /// Removed; about to be freed.
    Dead = 6,
}

/// The events of a client's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The last connection is up and the info response was accepted.
    Established,
    /// A connection, a work request or the heartbeat failed, or the peer disconnected.
    Failed,
    /// A failed set-up has been torn down, and another attempt is permitted.
    Retry,
    /// The reconnect delay is over; the path has been torn down completely.
    Start,
    /// The administrator requests a reconnect now (sysfs `reconnect`).
    Reconnect,
    /// The path must be closed (sysfs `disconnect`, end of the session, no attempts left).
    Close,
    /// The teardown of [`ClientEffect::TearDown`] is complete.
    TornDown,
    /// The path must be removed (sysfs `remove_path`, end of the session).
    Remove,
}

/// The actions of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEffect {
    /// Do nothing: the event arrived late, or twice.
    Ignore,
    /// Return `EBUSY` to the requester, as the event is not possible now.
    Busy,
    /// Admit IO to the path, start its heartbeat, announce it.
    GoLive,
    /// Wake the thread that waits for the set-up; it tears down and then sends `Retry` or `Close`.
    AbortConnect,
    /// Stop IO and heartbeat, disconnect, drain, fail over or end the requests in flight, then send
    /// `Start` after the reconnect delay.
    Recover,
    /// Send `Start` after the reconnect delay, or at once for a requested reconnect.
    ScheduleStart,
    /// Connect.
    Connect,
    /// Stop IO and heartbeat, disconnect, drain, end the requests in flight, then send `TornDown`.
    TearDown,
    /// Wake the threads that wait until the path is closed.
    AnnounceClosed,
    /// Remove the path from its session and free it.
    Release,
}

impl ClientState {
    /// Converts a stored number to a state.
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Connecting,
            1 => Self::ConnectingErr,
            2 => Self::Connected,
            3 => Self::Reconnecting,
            4 => Self::Closing,
            5 => Self::Closed,
            6 => Self::Dead,
            _ => return None,
        })
    }

    /// Returns the state after `event`, and the action.
    pub const fn step(self, event: ClientEvent) -> (Self, ClientEffect) {
        use ClientEffect as E;
        use ClientEvent as Ev;
        use ClientState as S;

        match (self, event) {
            (S::Connecting, Ev::Established) => (S::Connected, E::GoLive),
            (S::Connecting, Ev::Failed) => (S::ConnectingErr, E::AbortConnect),
            (S::ConnectingErr, Ev::Retry | Ev::Reconnect) => (S::Reconnecting, E::ScheduleStart),
            (S::Connected, Ev::Failed | Ev::Reconnect) => (S::Reconnecting, E::Recover),
            (S::Reconnecting, Ev::Start) => (S::Connecting, E::Connect),
            (S::Reconnecting, Ev::Reconnect) => (S::Reconnecting, E::ScheduleStart),
            (S::Closed, Ev::Reconnect) => (S::Reconnecting, E::ScheduleStart),
            (S::Connecting | S::Closing | S::Dead, Ev::Reconnect) => (self, E::Busy),
            (
                S::Connecting | S::ConnectingErr | S::Connected | S::Reconnecting,
                Ev::Close | Ev::Remove,
            ) => (S::Closing, E::TearDown),
            (S::Closing, Ev::TornDown) => (S::Closed, E::AnnounceClosed),
            (S::Closing, Ev::Remove) => (S::Closing, E::Busy),
            (S::Closed, Ev::Remove) => (S::Dead, E::Release),
            _ => (self, E::Ignore),
        }
    }

    /// Returns whether the path accepts IO.
    #[inline]
    pub const fn carries_io(self) -> bool {
        matches!(self, ClientState::Connected)
    }

    /// Returns whether connections of the path are being made, or given up before they are.
    pub const fn is_connecting(self) -> bool {
        matches!(self, ClientState::Connecting | ClientState::ConnectingErr)
    }
}

impl fmt::Display for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // sysfs shows two words.
        f.write_str(if self.carries_io() {
            "connected"
        } else {
            "disconnected"
        })
    }
}

/// The state of a server's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ServerState {
    /// Connections are arriving, or the info request has not arrived.
    Connecting = 0,
    /// The path serves requests.
    Connected = 1,
    /// The path is being torn down.
    Closing = 2,
    /// Torn down; about to be freed.
    Closed = 3,
}

/// The events of a server's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// An info request arrived on the admin connection.
    InfoRequest {
        /// Every announced connection is established.
        complete: bool,
    },
    /// A request arrived.
    Request,
    /// A work request or the heartbeat failed, the peer disconnected or violated the protocol, or
    /// `disconnect` was written.
    Close,
    /// The teardown of [`ServerEffect::TearDown`] is complete.
    TornDown,
}

/// The actions of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEffect {
    /// Do nothing: the event arrived late, or twice.
    Ignore,
    /// Send the info response, start the heartbeat, announce the path.
    GoLive,
    /// Execute the request.
    Serve,
    /// Stop the heartbeat, disconnect, drain, wait for the requests in flight, then send
    /// `TornDown`.
    TearDown,
    /// Free the path.
    Release,
}

impl ServerState {
    /// Converts a stored number to a state.
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Connecting,
            1 => Self::Connected,
            2 => Self::Closing,
            3 => Self::Closed,
            _ => return None,
        })
    }

    /// Returns the state after `event`, and the action.
    pub const fn step(self, event: ServerEvent) -> (Self, ServerEffect) {
        use ServerEffect as E;
        use ServerEvent as Ev;
        use ServerState as S;

        match (self, event) {
            (S::Connecting, Ev::InfoRequest { complete: true }) => (S::Connected, E::GoLive),
            // A client violates the protocol if it sends an info request before all its connections
            // are established, sends a second one, or sends requests before the info response
            // (CVE-2024-50062, D11).
            (S::Connecting, Ev::InfoRequest { complete: false } | Ev::Request)
            | (S::Connected, Ev::InfoRequest { .. })
            | (S::Connecting | S::Connected, Ev::Close) => (S::Closing, E::TearDown),
            (S::Connected, Ev::Request) => (S::Connected, E::Serve),
            (S::Closing, Ev::TornDown) => (S::Closed, E::Release),
            _ => (self, E::Ignore),
        }
    }
}
