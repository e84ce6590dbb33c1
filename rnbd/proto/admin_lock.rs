// SPDX-License-Identifier: GPL-2.0

//! The admin lock of a session: which OPEN, CLOSE and path validations may be in flight together.
//!
//! The number in an answer to OPEN is valid only as long as the server has not given it up. Two
//! things may come between the question and the moment at which the client uses the number:
//!
//! - A path is connected, perhaps to a server that was restarted since. Its validation does not ask
//!   for a device that is not open yet, so the path carries requests with a number of the old
//!   server. Hence a validation and an OPEN exclude each other. An OPEN that is sent after a path
//!   was connected is answered by the server of that path, or not at all.
//! - The server executes a CLOSE with that number: of a device that had it before, sent again
//!   because its answer was lost, or of a validation, which closes what it has opened. Hence a
//!   CLOSE and an OPEN exclude each other.
//!
//! Two validations exclude each other as well: one would close what the other compares. Several
//! OPEN may be in flight together, and several CLOSE.
//!
//! A CLOSE that has ended without an answer, in an outage, may still be on its way. Its number is
//! in doubt as long as the server may have a lost request, and no device is used with it meanwhile.

pub mod record;

/// The messages that a thread sends under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// OPEN of one device, until its number is in use.
    Open,
    /// CLOSE of one device.
    Close,
    /// The validation of one path, with the CLOSE of what it has opened.
    Validate,
}

/// The holders of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockState {
    /// The kind of all of them; `None`: there are none.
    mode: Option<LockMode>,
    count: u32,
}

impl LockState {
    /// The lock is free.
    pub const NONE: Self = Self {
        mode: None,
        count: 0,
    };

    /// Takes the lock; returns `false` if the caller must wait until another thread releases it.
    #[must_use]
    pub fn lock(&mut self, mode: LockMode) -> bool {
        let is_free = match (self.mode, mode) {
            (None, _) => true,
            (Some(LockMode::Open), LockMode::Open) | (Some(LockMode::Close), LockMode::Close) => {
                true
            }
            (Some(_), _) => false,
        };
        if is_free {
            self.mode = Some(mode);
            self.count = self.count.saturating_add(1);
        }
        is_free
    }

    /// Releases the lock; returns whether threads that wait may take it now.
    pub fn unlock(&mut self) -> bool {
        self.count = self.count.saturating_sub(1);
        let is_last = self.count == 0;
        if is_last {
            self.mode = None;
        }
        is_last
    }
}

/// The maximum of numbers that are stored; with more of them all numbers are in doubt.
const LOST_CLOSES_MAX: usize = 8;

/// The numbers of lost CLOSE messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostCloses {
    numbers: [Option<u32>; LOST_CLOSES_MAX],
    are_more: bool,
}

impl LostCloses {
    /// No number is in doubt.
    pub const NONE: Self = Self {
        numbers: [None; LOST_CLOSES_MAX],
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
