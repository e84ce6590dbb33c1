// SPDX-License-Identifier: GPL-2.0

//! A connection to a gfsd: it carries one request at a time, and belongs to a process of gfmd.

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// TCP connects, the server checks the key.
    Connecting,
    /// The connection joins a process.
    Joining,
    /// No request is outstanding.
    Idle,
    /// A request is outstanding, or a part of its reply was not received yet.
    Busy,
    /// The connection is not used any more.
    Broken,
}

/// The action before a request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Send it.
    Send,
    /// Send a [`ProcessReset`](super::gfs::ProcessReset) for the process of gfmd first: the
    /// connection is of an earlier one.
    Reset,
    /// Take another connection.
    Unusable,
}

/// A connection to a gfsd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gfsd {
    state: State,
    /// The process that it has joined, or joins.
    epoch: u32,
}

impl Gfsd {
    /// Starts to connect, for the process with this [`epoch`](super::gfmd::Gfmd::epoch).
    pub const fn new(epoch: u32) -> Self {
        Self {
            state: State::Connecting,
            epoch,
        }
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the process that it has joined, or joins.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The server has accepted the key: the driver sends `GFS_PROTO_PROCESS_SET`.
    pub fn authenticated(&mut self) {
        self.change(State::Connecting, State::Joining);
    }

    /// The answer to `GFS_PROTO_PROCESS_SET` or [`ProcessReset`](super::gfs::ProcessReset) is good.
    pub fn joined(&mut self) {
        self.change(State::Joining, State::Idle);
    }

    /// Takes the connection for a request of the process `epoch`.
    pub fn take(&mut self, epoch: u32) -> Use {
        match self.state {
            State::Idle if self.epoch == epoch => {
                self.state = State::Busy;
                Use::Send
            }
            State::Idle => {
                self.epoch = epoch;
                self.state = State::Joining;
                Use::Reset
            }
            _ => Use::Unusable,
        }
    }

    /// The last byte of a reply was received.
    pub fn answered(&mut self) {
        self.change(State::Busy, State::Idle);
    }

    /// The connection has failed, or its user does not wait for the reply: a reply that comes late
    /// must not be taken for that to the next request.
    pub fn abandon(&mut self) {
        self.state = State::Broken;
    }

    fn change(&mut self, from: State, to: State) {
        if self.state == from {
            self.state = to;
        }
    }
}
