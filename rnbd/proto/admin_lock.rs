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
//! OPEN may be in flight together, and several CLOSE. Who waits has its turn: see [`LockState`].
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

impl LockMode {
    /// Returns whether several threads may hold the lock in this mode together.
    const fn is_shared(self) -> bool {
        !matches!(self, Self::Validate)
    }

    /// Returns the modes in the order in which they have their turn after this one.
    const fn next(self) -> [Self; 3] {
        match self {
            Self::Open => [Self::Validate, Self::Close, Self::Open],
            Self::Validate => [Self::Close, Self::Open, Self::Validate],
            Self::Close => [Self::Open, Self::Validate, Self::Close],
        }
    }
}

/// The numbers of threads that wait, by mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    opens: u32,
    closes: u32,
    validations: u32,
}

impl Waiting {
    fn of(&mut self, mode: LockMode) -> &mut u32 {
        match mode {
            LockMode::Open => &mut self.opens,
            LockMode::Close => &mut self.closes,
            LockMode::Validate => &mut self.validations,
        }
    }

    /// Returns whether a thread waits in another mode than this one.
    fn are_others(mut self, mode: LockMode) -> bool {
        *self.of(mode) = 0;
        (self.opens, self.closes, self.validations) != (0, 0, 0)
    }
}

/// The holders of the lock, and the threads that wait for it.
///
/// While threads wait in several modes, these have turns: a turn lets those in that wait when it
/// begins, and a thread that comes later waits for the next one. So neither OPEN after OPEN keeps a
/// validation out for good, nor the validation of one path after another a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockState {
    /// The kind of all holders; `None`: there are none.
    mode: Option<LockMode>,
    count: u32,
    waiting: Waiting,
    /// The mode whose turn it is: threads that wait in it are let in and have not come yet.
    turn: Option<LockMode>,
    /// The number of these threads.
    let_in: u32,
}

impl LockState {
    /// The lock is free.
    pub const NONE: Self = Self {
        mode: None,
        count: 0,
        waiting: Waiting {
            opens: 0,
            closes: 0,
            validations: 0,
        },
        turn: None,
        let_in: 0,
    };

    /// Takes the lock. If it returns `false` the caller waits, until [`Self::retry`] returns `true`
    /// or it calls [`Self::give_up`].
    #[must_use]
    pub fn lock(&mut self, mode: LockMode) -> bool {
        let is_free = match self.mode.or(self.turn) {
            Some(other) => other == mode && mode.is_shared(),
            None => true,
        };
        if is_free && !self.waiting.are_others(mode) {
            self.take(mode);
            return true;
        }
        let waiting = self.waiting.of(mode);
        *waiting = waiting.saturating_add(1);
        false
    }

    /// Takes the lock for a thread that waits in `mode`, if it is let in.
    #[must_use]
    pub fn retry(&mut self, mode: LockMode) -> bool {
        let is_free = match self.mode {
            Some(held) => held == mode && mode.is_shared(),
            None => true,
        };
        if self.turn != Some(mode) || !is_free {
            return false;
        }
        self.leaves(mode);
        self.let_in(self.let_in.saturating_sub(1), mode);
        self.take(mode);
        true
    }

    /// Ends the wait of a thread that waits in `mode`; returns whether others may take the lock
    /// now.
    pub fn give_up(&mut self, mode: LockMode) -> bool {
        self.leaves(mode);
        if self.turn == Some(mode) {
            let waiting = *self.waiting.of(mode);
            self.let_in(self.let_in.min(waiting), mode);
        }
        match (self.mode, self.turn) {
            (None, None) => self.begin_turn(mode),
            (Some(now), _) | (None, Some(now)) => self.share(now),
        }
    }

    /// Releases the lock; returns whether it is free, so that threads that wait may take it now.
    pub fn unlock(&mut self) -> bool {
        self.count = self.count.saturating_sub(1);
        if self.count != 0 {
            return false;
        }
        if let (Some(ended), None) = (self.mode.take(), self.turn) {
            self.begin_turn(ended);
        }
        true
    }

    fn take(&mut self, mode: LockMode) {
        self.mode = Some(mode);
        self.count = self.count.saturating_add(1);
    }

    fn leaves(&mut self, mode: LockMode) {
        let waiting = self.waiting.of(mode);
        *waiting = waiting.saturating_sub(1);
    }

    /// Lets in so many of those that wait in `mode`.
    fn let_in(&mut self, count: u32, mode: LockMode) {
        self.let_in = count;
        self.turn = (count != 0).then_some(mode);
    }

    /// Begins the next turn after one of `ended`; returns whether a thread waits for it.
    fn begin_turn(&mut self, ended: LockMode) -> bool {
        for mode in ended.next() {
            let waiting = *self.waiting.of(mode);
            if waiting != 0 {
                self.let_in(waiting, mode);
                return true;
            }
        }
        false
    }

    /// Lets all in that wait in the mode of now, if it is shared and none waits in another one;
    /// returns whether there are more than before.
    fn share(&mut self, mode: LockMode) -> bool {
        let waiting = *self.waiting.of(mode);
        let may_share = mode.is_shared() && !self.waiting.are_others(mode);
        let are_more = may_share && waiting > self.let_in;
        if are_more {
            self.let_in(waiting, mode);
        }
        are_more
    }
}

/// Whether a device may be used with the number that the server has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberCheck {
    /// Yes.
    Use,
    /// No: the number is that of a server before an outage, and says nothing of this one.
    Outdated,
    /// No, and not the device that is used with it either: requests of one reach the other's disk.
    OfTwo,
    /// No: a lost CLOSE may still reach the server.
    InDoubt,
}

impl NumberCheck {
    /// Checks a number. `is_of_another`: another device is used with it; looked at before
    /// `is_same_outage`, whether no outage has begun since the server was asked. An outage
    /// disconnects all devices before the next server opens any: so the other one has the number
    /// of the same server if no outage is seen after it was.
    pub fn new(
        is_of_another: bool,
        is_same_outage: impl FnOnce() -> bool,
        is_in_doubt: impl FnOnce() -> bool,
    ) -> Self {
        if is_of_another {
            return match is_same_outage() {
                true => Self::OfTwo,
                false => Self::Outdated,
            };
        }
        match is_in_doubt() {
            true => Self::InDoubt,
            false => Self::Use,
        }
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
