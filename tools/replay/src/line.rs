// SPDX-License-Identifier: GPL-2.0

//! A line of a record: what `proto::recovery::record` writes, read back.

use proto::rtrs::recovery::{
    record::Operation,
    Event,
    Outcome,
    Pauses,
    TearDown, //
};

/// A line as far as the replay needs it: of a step it needs the event only, since it compares the
/// text with what it would have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Step(Event),
    Ran(Option<TearDown>),
    Did(Operation),
}

/// The first bit of a detail that is there.
const SOME: u32 = 1 << 16;

fn life(word: u32) -> Option<Option<u16>> {
    match (word, u16::try_from(word ^ SOME)) {
        (0, _) => Some(None),
        (_, Ok(life)) => Some(Some(life)),
        _ => None,
    }
}

const fn outcome(word: u32) -> Option<Outcome> {
    match word {
        0 => Some(Outcome::Silence),
        1 => Some(Outcome::Refused),
        2 => Some(Outcome::Other),
        _ => None,
    }
}

const fn run(word: u32) -> Option<TearDown> {
    match word {
        1 => Some(TearDown::ToConnectAgain),
        2 => Some(TearDown::ToLeaveDevice),
        3 => Some(TearDown::ForGood),
        _ => None,
    }
}

fn event(words: &[u32]) -> Option<Event> {
    let [kind, detail, took_ms, delay_ms_max, attempts_max, least_ms, random, ..] = *words else {
        return None;
    };
    let pauses = Pauses {
        delay_ms_max,
        // CAST: the same bits.
        attempts_max: attempts_max as i32,
        least_ms,
        random,
    };
    Some(match kind {
        1 => Event::Lost {
            life: life(detail)?,
        },
        2 => Event::Abandoned,
        3 => Event::DeviceGone {
            life: life(detail)?,
        },
        4 => Event::RetryNow,
        5 => Event::Reconnect,
        6 => Event::Start,
        7 => Event::Established,
        8 => Event::AttemptFailed {
            outcome: outcome(detail)?,
            took_ms,
            pauses,
        },
        9 => Event::TornDown {
            run: run(detail & !SOME)?,
            kept: detail & SOME != 0,
            pauses,
        },
        10 => Event::Undrained,
        11 => Event::Close,
        12 => Event::Remove,
        _ => return None,
    })
}

const fn operation(number: u32, pause_ms: u32) -> Option<Operation> {
    Some(match (number, pause_ms) {
        (1, pause_ms) => Operation::StartIn { pause_ms },
        (2, pause_ms) => Operation::TearDownIn { pause_ms },
        (3, 0) => Operation::QueueTearDown,
        (4, 0) => Operation::LeaveSession,
        (5, 0) => Operation::GiveUpAddress,
        (6, 0) => Operation::AbortConnect,
        (7, 0) => Operation::Connect,
        (8, 0) => Operation::GoLive,
        (9, 0) => Operation::StartHeartbeat,
        (10, 0) => Operation::Disconnect,
        (11, 0) => Operation::Drop,
        (12, 0) => Operation::Release,
        _ => return None,
    })
}

impl Line {
    /// Reads a line, if it is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ')?;
        let words = rest.split(' ').map(|word| u32::from_str_radix(word, 16));
        let words = words.collect::<Result<Vec<_>, _>>().ok()?;
        Some(match (kind, words.as_slice()) {
            ("step", words) => Self::Step(event(words)?),
            ("ran", [0]) => Self::Ran(None),
            ("ran", [word]) => Self::Ran(Some(run(*word)?)),
            ("did", [number, pause_ms]) => Self::Did(operation(*number, *pause_ms)?),
            _ => return None,
        })
    }
}
