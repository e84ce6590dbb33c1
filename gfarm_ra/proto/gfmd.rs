// SPDX-License-Identifier: GPL-2.0

//! The connection to gfmd: when to connect, when to give up for now, and which process it has.
//!
//! A process of gfmd, with all descriptors, ends with the connection that has created it: each new
//! connection creates a new one. The processes are counted: what was opened by an earlier one is
//! opened again.
//!
//! ```text
//!   Down --Wanted--> Connecting --> Authenticating --> Joining --Joined--> Ready
//!    ^                  ^  |              |               |                  |
//!    |               Timer '--------------'--- Failed ----'--------- Failed -'
//!    |                  |                        v
//!    '-- too long ------'---------------------- Waiting
//!
//!   any -- Close --> Closed
//! ```

use ferro_proto::{
    backoff::{
        Backoff,
        ATTEMPTS_FOR_EVER, //
    },
    errno::Errno,
};

use super::{
    error::GfarmError,
    retry::{
        AtGfmd,
        Fault, //
    },
};

/// The maximum delay between two attempts, in milliseconds.
pub const PAUSE_MS_MAX: u32 = 5000;

/// The least time for which a process is kept that was made as the one before was told to be gone,
/// if only gfsds tell that of it, too; in milliseconds.
const KEPT_MS_MIN: u64 = 60_000;

/// A question that gfmd has refused, and what there is for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The time.
    pub now_ms: u64,
    /// The time at which it was asked first, in milliseconds.
    pub asked_ms: u64,
    /// The servers accept the key of the user still.
    pub has_key: bool,
    /// The least time for which a process that is full is kept, in milliseconds; `None` if another
    /// one would be as full, see [`Count::kept_ms`](super::descriptors::Count::kept_ms).
    pub kept_ms: Option<u64>,
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No connection is there, and no request waits for one.
    Down,
    /// A timer runs before the next attempt.
    Waiting,
    /// TCP connects.
    Connecting,
    /// The server checks the key.
    Authenticating,
    /// A process is created.
    Joining,
    /// Requests are sent.
    Ready,
    /// The mount ends.
    Closed,
}

/// The events of the connection. Times are milliseconds of a monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request waits.
    Wanted {
        /// The time.
        now_ms: u64,
    },
    /// TCP is connected.
    Connected,
    /// The server has accepted the key.
    Authenticated,
    /// The process was created.
    Joined {
        /// The time.
        now_ms: u64,
    },
    /// An attempt, or the connection, has failed.
    Failed {
        /// The fault.
        fault: Fault,
        /// The time.
        now_ms: u64,
        /// `reconnect_timeout` in milliseconds.
        timeout_ms: u64,
        /// A random number, for the jitter of the pause.
        random: u32,
    },
    /// The timer of [`Effect::StartIn`] has expired.
    Timer,
    /// The mount ends.
    Close,
}

/// The action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is to be done.
    Ignore,
    /// Connect, to the next address if there are several.
    Connect,
    /// Authenticate.
    Authenticate,
    /// Create a process with a new key.
    Join,
    /// Send the requests that wait.
    SendWaiting,
    /// Close the socket, and send [`Event::Timer`] after this time. Requests that have no reply
    /// wait.
    StartIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Close the socket, and fail the requests that wait.
    FailWaiting(Errno),
    /// Close the socket and cancel the timer; nothing is left.
    Release,
}

/// The connection to gfmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gfmd {
    state: State,
    epoch: u32,
    /// The time since when requests may wait.
    since_ms: u64,
    /// The time since when the last process is there.
    joined_ms: u64,
    /// The process before the last one was left as a server had told that it is gone.
    was_gone: bool,
    backoff: Backoff,
}

impl Default for Gfmd {
    fn default() -> Self {
        Self::NEW
    }
}

impl Gfmd {
    /// A connection that was never made.
    pub const NEW: Self = Self {
        state: State::Down,
        epoch: 0,
        since_ms: 0,
        joined_ms: 0,
        was_gone: false,
        backoff: Backoff::NEW,
    };

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the number of processes so far, the `failover_count` of `GFS_PROTO_PROCESS_RESET`:
    /// descriptors of another epoch than this are gone.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the process's epoch, if requests can be sent now.
    pub const fn ready(&self) -> Option<u32> {
        match self.state {
            State::Ready => Some(self.epoch),
            _ => None,
        }
    }

    /// Returns whether the connection is given up for an error of gfmd, so that the next process
    /// answers the question.
    ///
    /// A process that is full may have descriptors that were closed: gfmd keeps one that a gfsd has
    /// open until the gfsd closes it, too, and one that is frozen does not. The next process has
    /// none of them. What is open is opened there when it is read, so one that was made lately, or
    /// has about as many open as there was room for before, is full of what is in use, and another
    /// one would be, too.
    ///
    /// No question leaves a second process for that, or it might never be answered. Without a key
    /// there is no next process.
    pub fn gives_up(&self, fault: Fault, question: Refused) -> bool {
        match fault {
            Fault::Server(GfarmError::TOO_MANY_OPEN_FILES) => {
                let lasted_ms = question.now_ms.saturating_sub(self.joined_ms);
                question.has_key
                    && question.asked_ms > self.joined_ms
                    && question.kept_ms.is_some_and(|kept_ms| lasted_ms >= kept_ms)
            }
            fault => AtGfmd::decide(fault) == AtGfmd::Reconnect,
        }
    }

    /// Returns whether a gfsd is believed that the process `epoch` is gone, as it tells.
    ///
    /// A gfsd that has lost its own gfmd tells that of each process, also of the one that was made
    /// because it had told so. The mount keeps such a process for a while, and takes the gfsd for
    /// one that does not work.
    pub fn is_gone(&self, epoch: u32, now_ms: u64) -> bool {
        let lasted_ms = now_ms.saturating_sub(self.joined_ms);
        self.ready() != Some(epoch) || !self.was_gone || lasted_ms >= KEPT_MS_MIN
    }

    /// Handles an event: changes the state and returns what to do.
    pub fn step(&mut self, event: Event) -> Effect {
        match (self.state, event) {
            (State::Closed, _) => Effect::Ignore,
            (_, Event::Close) => {
                self.state = State::Closed;
                Effect::Release
            }
            (State::Down, Event::Wanted { now_ms }) => {
                self.since_ms = now_ms;
                self.backoff.reset();
                self.enter(State::Connecting, Effect::Connect)
            }
            (State::Waiting, Event::Timer) => self.enter(State::Connecting, Effect::Connect),
            (State::Connecting, Event::Connected) => {
                self.enter(State::Authenticating, Effect::Authenticate)
            }
            (State::Authenticating, Event::Authenticated) => {
                self.enter(State::Joining, Effect::Join)
            }
            (State::Joining, Event::Joined { now_ms }) => {
                self.epoch = self.epoch.wrapping_add(1);
                self.joined_ms = now_ms;
                self.enter(State::Ready, Effect::SendWaiting)
            }
            (
                State::Connecting | State::Authenticating | State::Joining | State::Ready,
                Event::Failed {
                    fault,
                    now_ms,
                    timeout_ms,
                    random,
                },
            ) => {
                if self.state == State::Ready {
                    self.was_gone = fault == Fault::Server(GfarmError::GFMD_FAILED_OVER);
                }
                // A gfmd that is lost as soon as it has created a process was not back.
                let lasted_ms = now_ms.saturating_sub(self.joined_ms);
                if self.state == State::Ready && lasted_ms >= u64::from(PAUSE_MS_MAX) {
                    self.since_ms = now_ms;
                    self.backoff.reset();
                }
                self.failed(fault, now_ms, timeout_ms, random)
            }
            _ => Effect::Ignore,
        }
    }

    fn enter(&mut self, state: State, effect: Effect) -> Effect {
        self.state = state;
        effect
    }

    fn failed(&mut self, fault: Fault, now_ms: u64, timeout_ms: u64, random: u32) -> Effect {
        // A process that was given up because it is full: its gfmd is there.
        let was_full =
            self.state == State::Ready && fault == Fault::Server(GfarmError::TOO_MANY_OPEN_FILES);
        let is_late = !was_full && now_ms.saturating_sub(self.since_ms) >= timeout_ms;
        // The server does not accept the user or the key: it will not later.
        let is_final = match AtGfmd::decide(fault) {
            AtGfmd::Fail(_) => self.state != State::Ready,
            AtGfmd::Reconnect | AtGfmd::Wait => false,
        };
        let pause_ms = self.backoff.next(PAUSE_MS_MAX, ATTEMPTS_FOR_EVER, random);
        match pause_ms.filter(|_| !is_late && !is_final) {
            Some(pause_ms) => self.enter(State::Waiting, Effect::StartIn { pause_ms }),
            None => self.enter(State::Down, Effect::FailWaiting(fault.errno())),
        }
    }
}
