// SPDX-License-Identifier: GPL-2.0

//! The loss of a client's path and its return: when to tear down, when to connect again, and how
//! long to keep the stale connection.
//!
//! A path has lives. Each begins with an attempt to connect and ends with a fault. A server that
//! has not noticed the end of a life turns the next one away, so the client keeps the identifier of
//! that life's first connection, its *stale connection*: a disconnect on it tells the server.
//!
//! The driver keeps a [`Recovery`] under a spinlock, calls [`Recovery::step`] for each event and
//! carries the effects out. Three threads of execution call it:
//!
//! | who | events | excluded by |
//! |---|---|---|
//! | connecting thread | `Start`, `Established`, `AttemptFailed` | a mutex, with the next |
//! | teardown worker | [`Recovery::begin_tear_down`], `TornDown`, `Undrained` | the same mutex |
//! | events, timers, files of sysfs | all others | the spinlock only |
//!
//! [`Action::StartIn`] is carried out with the spinlock held, so that the last decided delay takes
//! effect. All other actions are carried out after the lock is released.

mod event;
pub mod record;

use ferro_proto::backoff::{
    Backoff,
    ATTEMPTS_FOR_EVER, //
};

use super::{
    path::{
        ClientEffect,
        ClientEvent,
        ClientState, //
    },
    timeouts::UNDRAINED_MS, //
};
pub use event::{
    Event,
    Outcome,
    Pauses, //
};

/// The maximum time that the requests of an abandoned path wait for the peer's disconnects, in
/// milliseconds. A peer that works sends them within a round trip and a drain.
const PEER_DISCONNECT_MS: u32 = 1000;

/// A run of the teardown worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TearDown {
    /// The path will connect again: a stale connection and the resources are kept.
    ToConnectAgain,
    /// The path is torn down already and will connect again, but its device is being removed: the
    /// kept objects are dropped.
    ToLeaveDevice,
    /// The path will be closed: the kept objects are dropped.
    ForGood,
}

/// The actions of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing.
    Ignore,
    /// Return `EBUSY` to the requester, as the event is not possible now.
    Busy,
    /// Admit IO to the path and start its heartbeat.
    GoLive,
    /// Abort the attempt of the connecting thread.
    AbortConnect,
    /// Abort the attempt of the connecting thread if it still resolves the peer's address.
    LookAgain,
    /// Queue a run of the teardown worker.
    TearDown,
    /// Queue the run of `TearDown`, for a path that is torn down already.
    LeaveDevice,
    /// Queue the run of `TearDown`, and log that no attempts are left.
    GiveUp,
    /// Queue a run of the teardown worker after this time, or after what is left of an earlier one.
    /// No memory of a request may be released before.
    TearDownIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Send `Start` after this time, which replaces an earlier timer.
    StartIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Connect.
    Connect,
    /// Wake the threads that wait until the path is closed.
    AnnounceClosed,
    /// Remove the path from its session and free it.
    Release,
}

/// The action for the stale connection that is kept, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleConnection {
    /// The connection stays as it is.
    Leave,
    /// Disconnect it; it stays.
    Disconnect,
    /// The connection is dropped, which disconnects it.
    Drop,
}

/// The actions for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// The action on the path.
    pub action: Action,
    /// The action for the stale connection; before `action` if both ask for something.
    pub stale_connection: StaleConnection,
}

/// The recovery state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    state: ClientState,
    /// The number of the current connect (`recon_cnt`).
    life: u16,
    /// No connection of the last life is left, and no attempt is running.
    is_torn_down: bool,
    /// The path was connected once.
    was_up: bool,
    /// A stale connection is kept.
    has_stale_connection: bool,
    /// A device goes away: nothing may be kept, and no attempt is made before that is so.
    is_device_gone: bool,
    /// The next attempt has no delay, and restarts the count.
    is_wanted: bool,
    /// The life was ended by the client, not by an error of a connection: its packets may still
    /// arrive.
    is_abandoned: bool,
    /// The path is to be removed: no reconnect is granted any more.
    is_closed_for_good: bool,
    backoff: Backoff,
    /// Attempts in a row that a peer with a resolved address has not answered.
    silent: u32,
}

impl Default for Recovery {
    fn default() -> Self {
        Self::NEW
    }
}

impl Recovery {
    /// A new path before its first attempt to connect.
    pub const NEW: Self = Self {
        state: ClientState::Connecting,
        life: 1,
        is_torn_down: false,
        was_up: false,
        has_stale_connection: false,
        is_device_gone: false,
        is_wanted: false,
        is_abandoned: false,
        is_closed_for_good: false,
        backoff: Backoff::NEW,
        silent: 0,
    };

    /// Returns the path's state.
    pub const fn state(&self) -> ClientState {
        self.state
    }

    /// Returns the number of the current connect: 1 for the first.
    pub const fn life(&self) -> u16 {
        self.life
    }

    /// Returns whether the path was connected once.
    pub const fn was_up(&self) -> bool {
        self.was_up
    }

    /// Whether a stale connection is kept.
    pub const fn has_stale_connection(&self) -> bool {
        self.has_stale_connection
    }

    /// Returns the number of attempts in a row that a resolved peer has not answered.
    pub const fn silent(&self) -> u32 {
        self.silent
    }

    /// Returns the number of attempts granted since the path was connected, or a reconnect was
    /// requested.
    pub const fn attempts(&self) -> u32 {
        self.backoff.attempts()
    }

    /// Starts a run of the teardown worker: returns its kind, or `None` if another run has done it
    /// already.
    ///
    /// The result is valid for the whole run, independent of later events: a close of the path
    /// during a run that is not for good requests another run.
    pub const fn begin_tear_down(&self) -> Option<TearDown> {
        match self.state {
            ClientState::Closing => Some(TearDown::ForGood),
            ClientState::Reconnecting if !self.is_torn_down => Some(TearDown::ToConnectAgain),
            ClientState::Reconnecting if self.is_device_gone => Some(TearDown::ToLeaveDevice),
            _ => None,
        }
    }

    /// Returns whether the client itself has ended the life: the peer's adapter may still work.
    pub const fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Returns how long the teardown waits at most until the peer has disconnected all
    /// connections, before it sends their requests again, in milliseconds. A server that
    /// `knows_fences` is asked instead, if there is a path for that.
    ///
    /// A peer moves its queue pair to the error state before it disconnects, so no packet of the
    /// connection reaches its memory after that. A connection that has failed by itself has sent
    /// nothing for some time, and a disconnect would not get through.
    pub const fn peer_disconnect_ms(&self, knows_fences: bool) -> u32 {
        if self.is_abandoned && !knows_fences {
            PEER_DISCONNECT_MS
        } else {
            0
        }
    }

    /// Handles an event: changes the state and returns the actions.
    pub fn step(&mut self, event: Event) -> Effects {
        match event {
            Event::Lost { life } => Self::only(self.lost(life)),
            Event::Abandoned => {
                self.note_abandoned();
                Self::only(self.lost(None))
            }
            Event::DeviceGone { life } => Self::only(self.device_gone(life)),
            Event::RetryNow => Self::only(self.retry_now()),
            Event::Reconnect => Self::only(self.reconnect()),
            Event::Start => Self::only(self.start()),
            Event::Established => self.established(),
            Event::AttemptFailed {
                outcome,
                took_ms,
                pauses,
            } => self.attempt_failed(outcome, took_ms, &pauses),
            Event::TornDown { run, kept, pauses } => self.torn_down(run, kept, &pauses),
            Event::Undrained => Self::only(self.undrained()),
            Event::Close | Event::CloseForGood => {
                self.is_closed_for_good |= event == Event::CloseForGood;
                self.note_abandoned();
                Self::only(self.end(ClientEvent::Close))
            }
            Event::Remove => Self::only(self.end(ClientEvent::Remove)),
        }
    }

    const fn only(action: Action) -> Effects {
        Effects {
            action,
            stale_connection: StaleConnection::Leave,
        }
    }

    fn change(&mut self, event: ClientEvent) -> ClientEffect {
        let (next, effect) = self.state.step(event);
        self.state = next;
        effect
    }

    fn drop_stale_connection(&mut self) -> StaleConnection {
        if core::mem::take(&mut self.has_stale_connection) {
            StaleConnection::Drop
        } else {
            StaleConnection::Leave
        }
    }

    /// Returns whether an attempt can start. If not, the pending run or attempt decides when.
    const fn may_start(&self) -> bool {
        self.is_torn_down && !self.is_device_gone
    }

    /// Notes who ends the life, if this event does.
    fn note_abandoned(&mut self) {
        if matches!(self.state, ClientState::Connected) {
            self.is_abandoned = true;
        }
    }

    fn lost(&mut self, life: Option<u16>) -> Action {
        // An event of an earlier life does not apply to the current one.
        if life.is_some_and(|life| life != self.life) {
            return Action::Ignore;
        }
        match self.change(ClientEvent::Failed) {
            ClientEffect::Recover => Action::TearDown,
            ClientEffect::AbortConnect => Action::AbortConnect,
            _ => Action::Ignore,
        }
    }

    fn device_gone(&mut self, life: Option<u16>) -> Action {
        match self.state {
            // A connected path has only its connections, which report the removal themselves.
            ClientState::Connected if life != Some(self.life) => return Action::Ignore,
            ClientState::Closing | ClientState::Closed | ClientState::Dead => {
                return Action::Ignore;
            }
            _ => self.is_device_gone = true,
        }
        match self.state {
            ClientState::Reconnecting if self.is_torn_down => Action::LeaveDevice,
            _ => self.lost(None),
        }
    }

    fn retry_now(&mut self) -> Action {
        match self.state {
            ClientState::Reconnecting | ClientState::ConnectingErr => {
                self.is_wanted = true;
                if self.state == ClientState::Reconnecting && self.may_start() {
                    Action::StartIn { pause_ms: 0 }
                } else {
                    Action::Ignore
                }
            }
            // A resolution that started before the link was up is not retried soon. (Not in the
            // first life, for which the task that adds the path waits.)
            ClientState::Connecting if self.life != Self::NEW.life => {
                self.is_wanted = true;
                Action::LookAgain
            }
            _ => Action::Ignore,
        }
    }

    fn reconnect(&mut self) -> Action {
        if self.is_closed_for_good {
            return Action::Busy;
        }
        self.note_abandoned();
        let effect = self.change(ClientEvent::Reconnect);
        match effect {
            ClientEffect::Recover | ClientEffect::ScheduleStart => {}
            _ => return Action::Busy,
        }
        self.backoff.reset();
        self.is_wanted = true;
        if effect == ClientEffect::Recover {
            Action::TearDown
        } else if self.may_start() {
            // A requested attempt is granted, also if no automatic ones are.
            let _ = self.backoff.next(0, ATTEMPTS_FOR_EVER, 0);
            Action::StartIn { pause_ms: 0 }
        } else {
            Action::Ignore
        }
    }

    fn start(&mut self) -> Action {
        if !self.may_start() || self.change(ClientEvent::Start) != ClientEffect::Connect {
            return Action::Ignore;
        }
        self.life = self.life.wrapping_add(1);
        self.is_torn_down = false;
        self.is_wanted = false;
        self.is_abandoned = false;
        Action::Connect
    }

    fn established(&mut self) -> Effects {
        if self.change(ClientEvent::Established) != ClientEffect::GoLive {
            return Self::only(Action::Ignore);
        }
        self.was_up = true;
        self.silent = 0;
        self.is_wanted = false;
        self.backoff.reset();
        Effects {
            action: Action::GoLive,
            // The server has put this life in the place of the earlier ones.
            stale_connection: self.drop_stale_connection(),
        }
    }

    fn attempt_failed(&mut self, outcome: Outcome, took_ms: u32, pauses: &Pauses) -> Effects {
        self.is_torn_down = true;
        self.silent = match outcome {
            Outcome::Silence => self.silent.saturating_add(1),
            _ => 0,
        };
        let stale_connection = match outcome {
            // The server can be reached, and may not have noticed what we have.
            Outcome::Refused if self.has_stale_connection => StaleConnection::Disconnect,
            _ => StaleConnection::Leave,
        };
        self.change(ClientEvent::Failed);
        self.change(ClientEvent::Retry);
        Effects {
            action: self.next_start(took_ms, pauses),
            stale_connection,
        }
    }

    fn torn_down(&mut self, run: TearDown, kept: bool, pauses: &Pauses) -> Effects {
        self.is_torn_down = true;
        match run {
            TearDown::ForGood => {
                self.has_stale_connection = false;
                self.is_device_gone = false;
                Self::only(match self.change(ClientEvent::TornDown) {
                    ClientEffect::AnnounceClosed => Action::AnnounceClosed,
                    _ => Action::Ignore,
                })
            }
            TearDown::ToLeaveDevice => {
                self.has_stale_connection = false;
                self.is_device_gone = false;
                Self::only(self.next_start(0, pauses))
            }
            TearDown::ToConnectAgain => {
                self.has_stale_connection |= kept;
                Self::only(self.next_start(0, pauses))
            }
        }
    }

    /// Returns what to do about a run that has not released anything. The state stays: no attempt
    /// starts, and the path is not closed.
    const fn undrained(&self) -> Action {
        match self.begin_tear_down() {
            Some(_) => Action::TearDownIn {
                pause_ms: UNDRAINED_MS,
            },
            None => Action::Ignore,
        }
    }

    /// Returns when to connect again, if the path was not closed meanwhile.
    fn next_start(&mut self, took_ms: u32, pauses: &Pauses) -> Action {
        if self.state != ClientState::Reconnecting {
            return Action::Ignore;
        }
        if self.is_device_gone {
            return Action::LeaveDevice;
        }
        // Kept until an attempt starts, as the removal of a device may cut off the delay granted
        // here.
        if self.is_wanted {
            self.backoff.reset();
        }
        let pause_ms = self
            .backoff
            .next(pauses.delay_ms_max, pauses.attempts_max, pauses.random);
        match pause_ms {
            Some(pause_ms) => Action::StartIn {
                pause_ms: pause_ms.saturating_sub(took_ms).max(pauses.least_ms),
            },
            None => {
                // One way leads to `Closed`, and it drops the stale connection: a teardown for
                // good.
                self.change(ClientEvent::Close);
                Action::GiveUp
            }
        }
    }

    fn end(&mut self, event: ClientEvent) -> Action {
        match self.change(event) {
            ClientEffect::TearDown => Action::TearDown,
            ClientEffect::Release => Action::Release,
            ClientEffect::Busy => Action::Busy,
            _ => Action::Ignore,
        }
    }
}
