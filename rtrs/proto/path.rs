// SPDX-License-Identifier: GPL-2.0

//! The life of a path, on either side: `step(state, event)` says what comes next and what to do.
//!
//! The drivers keep the state under their own lock, call `step` for whatever happens, store the
//! new state and carry out the effect after the lock is released. An event that comes too late, or
//! twice, changes nothing and asks for nothing.

use core::fmt;

/// State of a client's path.
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
    /// Set-up failed; what was made of it is being torn down.
    ConnectingErr = 1,
    /// Carries IO.
    Connected = 2,
    /// Torn down, or about to be, and will connect again.
    Reconnecting = 3,
    /// Being torn down for good.
    Closing = 4,
    /// Torn down; only a `reconnect` through sysfs brings it back.
    Closed = 5,
    /// Removed; about to be freed.
    Dead = 6,
}

/// What happens to a client's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The last connection is up and the info response was accepted.
    Established,
    /// A connection, a work request or the heartbeat failed, or the peer hung up.
    Failed,
    /// A failed set-up is torn down and another attempt is allowed.
    Retry,
    /// The time has come to connect again; the path is torn down completely.
    Start,
    /// Somebody asks for the path to connect again now (sysfs `reconnect`).
    Reconnect,
    /// The path is to be closed (sysfs `disconnect`, end of the session, attempts used up).
    Close,
    /// The teardown that [`ClientEffect::TearDown`] asked for is complete.
    TornDown,
    /// The path is to go away (sysfs `remove_path`, end of the session).
    Remove,
}

/// What the client has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEffect {
    /// Nothing: the event came too late, or twice.
    Ignore,
    /// Tell the one who asked that it cannot be done now (`EBUSY`).
    Busy,
    /// Let IO on the path, start its heartbeat, announce it.
    GoLive,
    /// Wake the one who waits for the set-up; it tears down and then says `Retry` or `Close`.
    AbortConnect,
    /// Stop IO and heartbeat, disconnect, drain, fail over or end what was in flight, then have
    /// `Start` happen after the reconnect delay.
    Recover,
    /// Have `Start` happen: after the reconnect delay, or at once if somebody asked for it.
    ScheduleStart,
    /// Make the connections.
    Connect,
    /// Stop everything, disconnect, drain, end what was in flight, then say `TornDown`.
    TearDown,
    /// Wake those who wait for the path to be closed.
    AnnounceClosed,
    /// Take the path off its session and free it.
    Release,
}

impl ClientState {
    /// Reads a state that was stored as a number.
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

    /// Returns the state after `event`, and what to do.
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

    /// Says whether IO may be put on the path.
    #[inline]
    pub const fn carries_io(self) -> bool {
        matches!(self, ClientState::Connected)
    }
}

impl fmt::Display for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // sysfs knows two words.
        f.write_str(if self.carries_io() {
            "connected"
        } else {
            "disconnected"
        })
    }
}

/// State of a server's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ServerState {
    /// Connections are arriving, or the info request has not come.
    Connecting = 0,
    /// Serves requests.
    Connected = 1,
    /// Being torn down.
    Closing = 2,
    /// Torn down; about to be freed.
    Closed = 3,
}

/// What happens to a server's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// An info request came on the admin connection; `complete`: every announced connection is
    /// established.
    InfoRequest {
        /// Every announced connection is established.
        complete: bool,
    },
    /// A request came.
    Request,
    /// A work request or the heartbeat failed, the peer hung up or broke the protocol, or somebody
    /// wrote `disconnect`.
    Close,
    /// The teardown that [`ServerEffect::TearDown`] asked for is complete.
    TornDown,
}

/// What the server has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEffect {
    /// Nothing: the event came too late, or twice.
    Ignore,
    /// Answer with the chunks, start the heartbeat, announce the path.
    GoLive,
    /// Carry the request out.
    Serve,
    /// Stop the heartbeat, disconnect, drain, wait for what is in flight, then say `TornDown`.
    TearDown,
    /// Free the path.
    Release,
}

impl ServerState {
    /// Reads a state that was stored as a number.
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Connecting,
            1 => Self::Connected,
            2 => Self::Closing,
            3 => Self::Closed,
            _ => return None,
        })
    }

    /// Returns the state after `event`, and what to do.
    pub const fn step(self, event: ServerEvent) -> (Self, ServerEffect) {
        use ServerEffect as E;
        use ServerEvent as Ev;
        use ServerState as S;

        match (self, event) {
            (S::Connecting, Ev::InfoRequest { complete: true }) => (S::Connected, E::GoLive),
            // A client that asks before all its connections exist, asks twice, or sends requests
            // before it was told where to, does not follow the protocol (CVE-2024-50062, D11).
            (S::Connecting, Ev::InfoRequest { complete: false } | Ev::Request)
            | (S::Connected, Ev::InfoRequest { .. })
            | (S::Connecting | S::Connected, Ev::Close) => (S::Closing, E::TearDown),
            (S::Connected, Ev::Request) => (S::Connected, E::Serve),
            (S::Closing, Ev::TornDown) => (S::Closed, E::Release),
            _ => (self, E::Ignore),
        }
    }
}
