// SPDX-License-Identifier: GPL-2.0

//! What a driver records of a path's recovery: each event with what was decided, and what the
//! driver did. `tools/replay` reads it, replays the events through [`Recovery`] and compares.

use core::fmt;

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

/// An event, the effects, and the state after it. Words that an event does not need are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step([u32; 10]);

/// What a driver is about to do for a path. It is recorded before it is done, so that what follows
/// from it is recorded later.
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
}

/// A line of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An event was handled.
    Step(Step),
    /// The teardown worker runs, with what [`Recovery::begin_tear_down`] has granted.
    Ran(Option<TearDown>),
    /// The driver is about to do something.
    Did(Operation),
}

/// The first bit of a detail that is there.
const SOME: u32 = 1 << 16;

const NO_PAUSES: Pauses = Pauses {
    delay_ms_max: 0,
    attempts_max: 0,
    least_ms: 0,
    random: 0,
};

fn life_to_word(life: Option<u16>) -> u32 {
    life.map_or(0, |life| SOME | u32::from(life))
}

const fn outcome_to_word(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Silence => 0,
        Outcome::Refused => 1,
        Outcome::Other => 2,
    }
}

const fn run_to_word(run: TearDown) -> u32 {
    match run {
        TearDown::ToConnectAgain => 1,
        TearDown::ToLeaveDevice => 2,
        TearDown::ForGood => 3,
    }
}

/// The kind of an event, its detail, a duration, and the pauses.
fn event_to_words(event: &Event) -> (u32, u32, u32, Pauses) {
    match *event {
        Event::Lost { life } => (1, life_to_word(life), 0, NO_PAUSES),
        Event::Abandoned => (2, 0, 0, NO_PAUSES),
        Event::DeviceGone { life } => (3, life_to_word(life), 0, NO_PAUSES),
        Event::RetryNow => (4, 0, 0, NO_PAUSES),
        Event::Reconnect => (5, 0, 0, NO_PAUSES),
        Event::Start => (6, 0, 0, NO_PAUSES),
        Event::Established => (7, 0, 0, NO_PAUSES),
        Event::AttemptFailed {
            outcome,
            took_ms,
            pauses,
        } => (8, outcome_to_word(outcome), took_ms, pauses),
        Event::TornDown { run, kept, pauses } => {
            let kept = if kept { SOME } else { 0 };
            (9, kept | run_to_word(run), 0, pauses)
        }
        Event::Undrained => (10, 0, 0, NO_PAUSES),
        Event::Close => (11, 0, 0, NO_PAUSES),
        Event::Remove => (12, 0, 0, NO_PAUSES),
    }
}

/// The number of an action, and its pause.
const fn action_to_words(action: Action) -> (u32, u32) {
    match action {
        Action::Ignore => (0, 0),
        Action::Busy => (1, 0),
        Action::GoLive => (2, 0),
        Action::AbortConnect => (3, 0),
        Action::LookAgain => (4, 0),
        Action::TearDown => (5, 0),
        Action::LeaveDevice => (6, 0),
        Action::GiveUp => (7, 0),
        Action::TearDownIn { pause_ms } => (8, pause_ms),
        Action::StartIn { pause_ms } => (9, pause_ms),
        Action::Connect => (10, 0),
        Action::AnnounceClosed => (11, 0),
        Action::Release => (12, 0),
    }
}

impl Step {
    /// Returns the record of `event`, which had these `effects` and led to `after`.
    pub fn new(event: &Event, effects: &Effects, after: &Recovery) -> Self {
        let (kind, detail, took_ms, pauses) = event_to_words(event);
        let (action, pause_ms) = action_to_words(effects.action);
        let stale_connection = match effects.stale_connection {
            StaleConnection::Leave => 0,
            StaleConnection::Disconnect => 1,
            StaleConnection::Drop => 2,
        };
        // CAST: the discriminant of a `repr(u8)`.
        let state = u32::from(after.state() as u8);
        Self([
            kind,
            detail,
            took_ms,
            pauses.delay_ms_max,
            // CAST: the same bits.
            pauses.attempts_max as u32,
            pauses.least_ms,
            pauses.random,
            state << 16 | stale_connection << 8 | action,
            pause_ms,
            u32::from(after.life()),
        ])
    }
}

impl Operation {
    const fn to_words(self) -> (u32, u32) {
        match self {
            Self::StartIn { pause_ms } => (1, pause_ms),
            Self::TearDownIn { pause_ms } => (2, pause_ms),
            Self::QueueTearDown => (3, 0),
            Self::LeaveSession => (4, 0),
            Self::GiveUpAddress => (5, 0),
            Self::AbortConnect => (6, 0),
            Self::Connect => (7, 0),
            Self::GoLive => (8, 0),
            Self::StartHeartbeat => (9, 0),
            Self::Disconnect => (10, 0),
            Self::Drop => (11, 0),
            Self::Release => (12, 0),
        }
    }
}

/// The word of the kind and hexadecimal numbers, as in `did 1 64`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(Step(words)) => {
                f.write_str("step")?;
                words.iter().try_for_each(|word| write!(f, " {word:x}"))
            }
            Self::Ran(run) => write!(f, "ran {:x}", run.map_or(0, run_to_word)),
            Self::Did(operation) => {
                let (number, pause_ms) = operation.to_words();
                write!(f, "did {number:x} {pause_ms:x}")
            }
        }
    }
}
