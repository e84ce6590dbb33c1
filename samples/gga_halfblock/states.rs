// SPDX-License-Identifier: GPL-2.0

//! The life cycle, which all peers go through in step: a request that comes at another time is
//! refused and changes nothing.

use crate::{control::Body, defect::Defect};

/// Connections of a thread: one for data, one for IO messages.
pub const CONNECTIONS_OF_CORE: u64 = 2;

/// The state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The peer has asked nothing yet.
    Connected,
    /// The size was told.
    Queried,
    /// The objects for IO are there, connections are made.
    Initialised,
    /// IO is done.
    Running,
    /// No IO is done any more.
    Stopped,
    /// All is given back.
    ShutDown,
}

/// The life of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeCycle {
    state: State,
    /// Connections that are still to be made before IO may begin.
    missing: u64,
}

impl LifeCycle {
    /// A peer that was just connected.
    pub const NEW: Self = Self {
        state: State::Connected,
        missing: 0,
    };

    /// Returns the state of the peer.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the life after a request, if it is the time for it. Who carries the request out
    /// takes this life when it is done; one that failed may come again.
    ///
    /// # Errors
    ///
    /// Returns a defect if it is not the time.
    pub fn after(&self, request: &Body) -> Result<Self, Defect> {
        let (state, missing) = match (self.state, request, self.missing) {
            (State::Connected, Body::QueryRequest, _) => (State::Queried, 0),
            (State::Queried, Body::InitRequest { cores, .. }, _) => {
                let missing = u64::from(*cores) * CONNECTIONS_OF_CORE;
                (State::Initialised, missing)
            }
            (State::Initialised, Body::ConnectRequest(_), 1..) => {
                (State::Initialised, self.missing - 1)
            }
            (State::Initialised, Body::StartRequest, 0) => (State::Running, 0),
            (State::Running, Body::StopRequest, _) => (State::Stopped, 0),
            (State::Stopped, Body::ShutdownRequest, _) => (State::ShutDown, 0),
            (state, request, _) => {
                let rule = format_args!("not expected in the state {state:?}");
                return Err(Defect::new(
                    "the type of the message",
                    request.number(),
                    rule,
                ));
            }
        };
        Ok(Self { state, missing })
    }

    /// The service makes the connections to the targets itself: none is missing to its initiator.
    pub const fn with_connections_made(self) -> Self {
        Self { missing: 0, ..self }
    }
}
