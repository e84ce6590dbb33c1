// SPDX-License-Identifier: GPL-2.0

//! The order of OPEN, CLOSE and surveys of a session: which of them may be in flight together.
//!
//! The number in an answer to OPEN is valid only as long as the server has not given it up. Two
//! things may come between the question and the moment at which the client uses the number:
//!
//! - A path is connected, perhaps to a server that was restarted since. Its survey does not ask
//!   for a device that is not open yet, so the path carries requests with a number of the old
//!   server. Hence a survey and an OPEN exclude each other. An OPEN that is sent after a path was
//!   connected is answered by the server of that path, or not at all.
//! - The server executes a CLOSE with that number: of a device that had it before, sent again
//!   because its answer was lost, or of a survey, which closes what it has opened. Hence a CLOSE
//!   and an OPEN exclude each other.
//!
//! Two surveys exclude each other as well: one would close what the other compares. Several OPEN
//! may be in flight together, and several CLOSE.
//!
//! A CLOSE that has ended without an answer, in an outage, may still be on its way. Its number is
//! in doubt as long as the server may have a lost request, and no device is used with it meanwhile.

pub mod record;

/// What a thread sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// OPEN of one device, until its number is in use.
    Open,
    /// CLOSE of one device.
    Close,
    /// The survey of one path, with the CLOSE of what it has opened.
    Survey,
}

/// The turns that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The kind of all of them; `None`: there are none.
    kind: Option<Turn>,
    count: u32,
}

impl Turns {
    /// No turn is taken.
    pub const NONE: Self = Self {
        kind: None,
        count: 0,
    };

    /// Takes a turn; returns `false` if the caller must wait until another one ends.
    #[must_use]
    pub fn take(&mut self, turn: Turn) -> bool {
        let is_free = match (self.kind, turn) {
            (None, _) => true,
            (Some(Turn::Open), Turn::Open) | (Some(Turn::Close), Turn::Close) => true,
            (Some(_), _) => false,
        };
        if is_free {
            self.kind = Some(turn);
            self.count = self.count.saturating_add(1);
        }
        is_free
    }

    /// Ends a turn; returns whether others may be free now.
    pub fn end(&mut self) -> bool {
        self.count = self.count.saturating_sub(1);
        let is_last = self.count == 0;
        if is_last {
            self.kind = None;
        }
        is_last
    }
}

/// Most numbers that are stored; with more of them all numbers are in doubt.
const DOUBTS_MAX: usize = 8;

/// The numbers of lost CLOSE messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubts {
    numbers: [Option<u32>; DOUBTS_MAX],
    are_more: bool,
}

impl Doubts {
    /// No number is in doubt.
    pub const NONE: Self = Self {
        numbers: [None; DOUBTS_MAX],
        are_more: false,
    };

    /// Adds the number of a CLOSE that was lost.
    pub fn add(&mut self, number: u32) {
        if self.numbers.contains(&Some(number)) {
            return;
        }
        match self.numbers.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(number),
            None => self.are_more = true,
        }
    }

    /// Returns whether a number that the server has given a device must not be used yet.
    /// `is_any_lost`: the server may have a lost request; if not, nothing is in doubt any more.
    pub fn include(&mut self, number: u32, is_any_lost: bool) -> bool {
        if !is_any_lost {
            *self = Self::NONE;
        }
        self.are_more || self.numbers.contains(&Some(number))
    }
}
