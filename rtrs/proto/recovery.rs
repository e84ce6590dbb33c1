// SPDX-License-Identifier: GPL-2.0

//! How a client's path is lost and comes back: when to tear down, when to connect again, and how
//! long to keep the stale connection.
//!
//! A path has lives. Each begins with an attempt to connect and ends with a fault. A server that
//! has not noticed the end of a life turns the next one away, so the client keeps the identifier of
//! that life's first connection, its *stale connection*: a disconnect on it tells the server.
//!
//! The driver keeps a [`Recovery`] under a spinlock, calls [`Recovery::step`] for whatever happens
//! and carries the effects out. Three threads of execution call it:
//!
//! | who | events | excluded by |
//! |---|---|---|
//! | connecting thread | `Start`, `Established`, `AttemptFailed` | a mutex, with the next |
//! | teardown worker | [`Recovery::begin_tear_down`], `TornDown` | the same mutex |
//! | events, timers, files of sysfs | all others | the spinlock only |
//!
//! [`Action::StartIn`] is carried out with the spinlock held: of two pauses the one that was
//! decided upon last counts. Everything else is carried out after the lock is released.

use ferro_proto::backoff::{
    Backoff,
    ATTEMPTS_FOR_EVER, //
};

use super::path::{
    ClientEffect,
    ClientEvent,
    ClientState, //
};

/// The settings that a pause depends on, and chance.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// `reconnect_delay`, in milliseconds.
    pub delay_ms_max: u32,
    /// `max_reconnect_attempts`; negative: for ever.
    pub attempts_max: i32,
    /// The pause is not shorter, in milliseconds.
    pub least_ms: u32,
    /// Any number.
    pub random: u32,
}

/// How an attempt to connect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A peer whose address is known has not answered in time.
    Silence,
    /// The server itself said no: it may believe in an earlier life.
    Refused,
    /// Anything else.
    Other,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A connection, a work request or the heartbeat of `life` has failed; `None`: of this life.
    Lost {
        /// The life that is meant.
        life: Option<u16>,
    },
    /// A device is being removed: the one under a connection of `life`; `None`: any device.
    DeviceGone {
        /// The life that is meant.
        life: Option<u16>,
    },
    /// Something may have changed for the better: a port is up, a device has come.
    RetryNow,
    /// An administrator wants the path connected anew, whatever its state.
    Reconnect,
    /// The pause is over.
    Start,
    /// The last connection is up and the info response was accepted.
    Established,
    /// An attempt to connect the path again has failed, and nothing is left of it.
    AttemptFailed {
        /// How.
        outcome: Outcome,
        /// How long it took: as much less is the pause.
        took_ms: u32,
        /// For the next pause.
        pauses: Pauses,
    },
    /// The run that [`Recovery::begin_tear_down`] granted is over: nothing is connected any more.
    TornDown {
        /// What was granted.
        run: TearDown,
        /// The driver has kept a stale connection; only in a run to connect again.
        kept: bool,
        /// For the next pause.
        pauses: Pauses,
    },
    /// The path is to be closed.
    Close,
    /// A closed path is to be taken off its session.
    Remove,
}

/// A run of the teardown worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TearDown {
    /// The path will connect again: a stale connection and the resources are kept.
    ToConnectAgain,
    /// The path is torn down already and will connect again, but its device goes away: nothing is
    /// kept, and what was kept before is dropped.
    ToLeaveDevice,
    /// The path will be closed: nothing may be kept, and what was kept before is dropped.
    ForGood,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Ignore,
    /// Tell the one who asked that it cannot be done now (`EBUSY`).
    Busy,
    /// Let IO on the path and start its heartbeat.
    GoLive,
    /// Make the connecting thread give its attempt up.
    AbortConnect,
    /// Make the connecting thread give its attempt up if it still looks for the peer's address.
    LookAgain,
    /// Queue a run of the teardown worker.
    TearDown,
    /// As `TearDown`, for a path that is torn down already.
    LeaveDevice,
    /// As `TearDown`, and say that the path has had its attempts.
    GiveUp,
    /// Have `Start` happen after this time and not before, whatever was arranged before.
    StartIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Make the connections.
    Connect,
    /// Wake those who wait for the path to be closed.
    AnnounceClosed,
    /// Take the path off its session and free it.
    Release,
}

/// What becomes of the stale connection that is kept, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleConnection {
    /// It stays as it is.
    Leave,
    /// Disconnect it; it stays.
    Disconnect,
    /// It is dropped, which disconnects it.
    Drop,
}

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// What to do with the path.
    pub action: Action,
    /// What to do with the stale connection; before `action` if both ask for something.
    pub stale_connection: StaleConnection,
}

/// What is remembered of a path between events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    state: ClientState,
    /// The number of the connect that counts (`recon_cnt`).
    life: u16,
    /// Nothing of the last life is connected, and no attempt is under way.
    is_torn_down: bool,
    /// It was connected once.
    was_up: bool,
    /// A stale connection is kept.
    has_stale_connection: bool,
    /// A device goes away: nothing may be kept, and no attempt is made before that is so.
    is_device_gone: bool,
    /// The next pause is none, and counting starts again.
    is_wanted: bool,
    backoff: Backoff,
    /// Attempts in a row that a peer which could be found has not answered.
    silent: u32,
}

impl Default for Recovery {
    fn default() -> Self {
        Self::NEW
    }
}

impl Recovery {
    /// A new path, whose first attempt to connect is about to be made.
    pub const NEW: Self = Self {
        state: ClientState::Connecting,
        life: 1,
        is_torn_down: false,
        was_up: false,
        has_stale_connection: false,
        is_device_gone: false,
        is_wanted: false,
        backoff: Backoff::NEW,
        silent: 0,
    };

    /// The path's state.
    pub const fn state(&self) -> ClientState {
        self.state
    }

    /// The number of the connect that counts: 1 for the first.
    pub const fn life(&self) -> u16 {
        self.life
    }

    /// Whether the path was connected once.
    pub const fn was_up(&self) -> bool {
        self.was_up
    }

    /// Whether a stale connection is kept.
    pub const fn has_stale_connection(&self) -> bool {
        self.has_stale_connection
    }

    /// Attempts in a row that a peer which could be found has not answered.
    pub const fn silent(&self) -> u32 {
        self.silent
    }

    /// Attempts that were granted since the path was connected, or asked for.
    pub const fn attempts(&self) -> u32 {
        self.backoff.attempts()
    }

    /// The teardown worker runs: says what for, or `None` if another run has done it already.
    ///
    /// The answer holds for the whole run, whatever happens meanwhile: whoever closes the path
    /// during a run that is not for good has asked for another one.
    pub const fn begin_tear_down(&self) -> Option<TearDown> {
        match self.state {
            ClientState::Closing => Some(TearDown::ForGood),
            ClientState::Reconnecting if !self.is_torn_down => Some(TearDown::ToConnectAgain),
            ClientState::Reconnecting if self.is_device_gone => Some(TearDown::ToLeaveDevice),
            _ => None,
        }
    }

    /// Something happened: goes into the next state and says what to do.
    pub fn step(&mut self, event: Event) -> Effects {
        match event {
            Event::Lost { life } => Self::only(self.lost(life)),
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
            Event::Close => Self::only(self.end(ClientEvent::Close)),
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

    /// Whether an attempt can begin. If not, the run or the attempt that is due decides when.
    const fn may_start(&self) -> bool {
        self.is_torn_down && !self.is_device_gone
    }

    fn lost(&mut self, life: Option<u16>) -> Action {
        // What is left of an earlier life says nothing about this one.
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
            // It has nothing but its connections, and they say so for themselves.
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
            // A peer that was asked for in vain before the link was there is not asked for again
            // soon. (Not in the first life: whoever makes the path waits for it.)
            ClientState::Connecting if self.life != Self::NEW.life => {
                self.is_wanted = true;
                Action::LookAgain
            }
            _ => Action::Ignore,
        }
    }

    fn reconnect(&mut self) -> Action {
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
            // Whoever asks for an attempt gets one, even where there are none by themselves.
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

    /// When to connect again, if that is to be: the path may have been closed meanwhile.
    fn next_start(&mut self, took_ms: u32, pauses: &Pauses) -> Action {
        if self.state != ClientState::Reconnecting {
            return Action::Ignore;
        }
        if self.is_device_gone {
            return Action::LeaveDevice;
        }
        // Until an attempt begins: the pause that is granted here may be cut off by a device that
        // goes.
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
