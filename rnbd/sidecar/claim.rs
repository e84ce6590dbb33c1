// SPDX-License-Identifier: GPL-2.0

//! Use of a device by one server: two that share the disk must not use its sidecar at a time, as
//! each of them writes journal and tuples from its own memory.
//!
//! The second sector of block 0 has a [*mark*](mark) while a server has the device open:
//!
//! ```text
//!  look ── free ──────────────────────────┬─ write ─ in time: wait settle_ms ─ look ── own ── HELD
//!    └──── a mark: wait stale_ms, look ───┘    └──── late: wait stale_ms, look, write again ──┘
//!                       └── changed: BUSY               └── of another one: BUSY
//!
//!  HELD ── every interval_ms: look ── own ── write ── the lease is extended
//!                                       └── of another one, none, or of another sidecar: LOST
//! ```
//!
//! *The lease.* A server uses the device for [`lease_ms`](Timing::lease_ms) from the look that its
//! last mark was written after. A mark that stays as it is for [`stale_ms`](Timing::stale_ms) is of
//! a server that is down, or knows that it must not use the device. One whose lease has ended
//! writes its mark as if it took the device, and goes on if no other one has had it meanwhile.
//!
//! *The late write.* Two may find the same and both write. Who writes soon after its look
//! (`settle_ms`) is seen by the other one's last look, or sees the other one's mark. Who
//! writes late may have written over the mark of one that holds the device, which stops when it
//! looks, at the end of its lease at the latest: so it waits as for a stale mark.
//!
//! No time limit of the device is relied on for that: the model (`tools/proto`, `sidecar::claim`)
//! lets a write of a mark, a server, and what it knows be late for as long as they like. It is for
//! what is in flight when a lease ends: an IO that was submitted takes effect within
//! `stale_ms - lease_ms`, or never.
//!
//! A [`Claim`] decides; its user carries out the steps, one after the other, and says how much time
//! has passed.

pub mod advance;
pub mod mark;
pub mod permission;

use self::mark::Found;

/// Times of a claim, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// The time between two renewals.
    pub interval_ms: u32,
    /// A write that ends so long after the look before it, or longer, is late. For so long others
    /// are waited for that have found the same.
    pub settle_ms: u32,
    /// The time from a look for which it, with the write behind it, permits the use of the device.
    pub lease_ms: u32,
    /// The time for which the mark of another server must stay as it is.
    pub stale_ms: u32,
}

impl Timing {
    /// Times of servers, the same in all of them.
    pub const SERVERS: Self = Self {
        interval_ms: 1500,
        settle_ms: 500,
        lease_ms: 4000,
        stale_ms: 6000,
    };
}
const _: () = {
    let times = Timing::SERVERS;
    // One renewal may fail.
    assert!(times.interval_ms * 2 < times.lease_ms);
    assert!(times.settle_ms < times.lease_ms && times.lease_ms < times.stale_ms);
};

/// Action of the user of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read the sector of the mark: [`Claim::read`].
    Read,
    /// Wait for so many milliseconds at least: [`Claim::waited`].
    Wait(u32),
    /// Write a mark that was never written before: [`Claim::written`]. One that is not the first
    /// need not be durable: others read it from the same device, and what a device that loses its
    /// cache has then is another mark of the same server.
    Write {
        /// The mark of this opening is not on the device yet.
        is_first: bool,
    },
    /// Rest for [`Claim::rest_ms`]; then call [`Claim::renew`].
    Rest,
    /// Give up: another one, which was found last, uses the device.
    Busy,
    /// Stop: another one has taken the device.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// About to look for a mark.
    Look,
    /// A mark was found: waiting whether it changes.
    Watch(Found),
    /// About to look whether it has changed.
    LookAgain(Found),
    /// About to write the mark of one that may not use the device now.
    Take,
    /// The mark is written: waiting for others that have found the same.
    Settle {
        is_late: bool,
    },
    /// About to look whether it is still there.
    Confirm,
    /// The mark is written.
    Held,
    /// About to look whether it is still there.
    Check,
    /// About to write it anew.
    Renew,
    Busy,
    Lost,
}

/// The use of a device by one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The number of this opening of the device, by which its marks are known.
    opening: u64,
    timing: Timing,
    state: State,
    /// The time since the look for a mark that counts began, and since the last one; no more than
    /// a lease.
    look_age_ms: u32,
    read_age_ms: u32,
    /// The rest of the lease.
    lease_ms: u32,
    /// The device was used.
    has_held: bool,
}

impl Claim {
    /// A server that is about to open a device, with a random number of this opening.
    pub const fn new(opening: u64, timing: Timing) -> Self {
        Self {
            opening,
            timing,
            state: State::Look,
            look_age_ms: 0,
            read_age_ms: 0,
            lease_ms: 0,
            has_held: false,
        }
    }

    /// Adds `ms` milliseconds to the time. Called before each of the other functions.
    pub fn pass(&mut self, ms: u32) {
        let older = |age: u32| age.saturating_add(ms).min(self.timing.lease_ms);
        self.look_age_ms = older(self.look_age_ms);
        self.read_age_ms = older(self.read_age_ms);
        self.lease_ms = self.lease_ms.saturating_sub(ms);
    }

    /// Returns for how many milliseconds from now on the device may be used.
    pub const fn lease_ms(&self) -> u32 {
        match self.state {
            State::Busy | State::Lost => 0,
            _ => self.lease_ms,
        }
    }

    /// Returns for how many milliseconds from now on nothing is to be done, of
    /// [`Timing::interval_ms`] from the last look on.
    pub const fn rest_ms(&self) -> u32 {
        self.timing.interval_ms.saturating_sub(self.look_age_ms)
    }

    const fn is_late(&self) -> bool {
        self.look_age_ms >= self.timing.settle_ms
    }

    /// Returns what to do next. Called once for each step.
    pub fn step(&mut self) -> Step {
        if self.is_late() {
            self.state = match self.state {
                // Another one may have taken the device meanwhile.
                State::Take => State::Look,
                // A write that is late would cost it the device: it is tried again later.
                State::Renew if self.lease_ms == 0 => State::Held,
                state => state,
            };
        }
        match self.state {
            State::Look | State::LookAgain(_) | State::Confirm | State::Check => {
                self.read_age_ms = 0;
                Step::Read
            }
            State::Watch(_) | State::Settle { is_late: true } => Step::Wait(self.timing.stale_ms),
            State::Settle { is_late: false } => Step::Wait(self.timing.settle_ms),
            State::Take => Step::Write { is_first: true },
            State::Renew => Step::Write { is_first: false },
            State::Held => Step::Rest,
            State::Busy => Step::Busy,
            State::Lost => Step::Lost,
        }
    }

    /// Returns whether the mark of another one is waited for.
    pub const fn is_watching(&self) -> bool {
        matches!(self.state, State::Watch(_))
    }

    /// The sector was read. Returns whether what was found counts: while the lease lasts no other
    /// one takes the device, so what makes no sense is a bad reading, which says as little as one
    /// that has [failed](Self::failed), and is tried again.
    #[must_use = "what does not count is an error of the device"]
    pub fn read(&mut self, found: Found) -> bool {
        if matches!((self.state, found), (State::Check, Found::Unknown(_))) && self.lease_ms != 0 {
            self.failed();
            return false;
        }
        let is_own = found.is_of(self.opening);
        self.state = match self.state {
            State::Look if found == Found::Free || is_own => self.looked(State::Take),
            State::Look => State::Watch(found),
            State::LookAgain(before) if found == before || found == Found::Free => {
                self.looked(State::Take)
            }
            State::Confirm if is_own => self.confirmed(),
            State::LookAgain(_) => State::Busy,
            State::Confirm if !self.has_held => State::Busy,
            State::Check if is_own => self.looked(State::Renew),
            State::Confirm | State::Check => State::Lost,
            state => state,
        };
        true
    }

    /// The last look is the one that counts from now on.
    const fn looked(&mut self, state: State) -> State {
        self.look_age_ms = self.read_age_ms;
        state
    }

    /// The mark is still there after a while; if that was longer than a lease, it is written again.
    fn confirmed(&mut self) -> State {
        let lease_ms = self.timing.lease_ms.saturating_sub(self.look_age_ms);
        if lease_ms == 0 {
            return match self.has_held {
                true => State::Held,
                false => self.looked(State::Take),
            };
        }
        self.lease_ms = lease_ms;
        self.has_held = true;
        State::Held
    }

    /// The time has passed.
    pub fn waited(&mut self) {
        self.state = match self.state {
            State::Watch(found) => State::LookAgain(found),
            State::Settle { .. } => State::Confirm,
            state => state,
        };
    }

    /// The mark was written.
    pub fn written(&mut self) {
        let is_late = self.is_late();
        self.state = match self.state {
            State::Take => State::Settle { is_late },
            State::Renew if self.lease_ms != 0 => {
                self.lease_ms = self.timing.lease_ms.saturating_sub(self.look_age_ms);
                State::Held
            }
            State::Renew => self.written_without_lease(),
            state => state,
        };
    }

    /// A mark was written anew, or may have been, after the end of the lease.
    fn written_without_lease(&self) -> State {
        match self.is_late() {
            // Another one may have had the device, whose mark is gone now.
            true => State::Lost,
            false => State::Settle { is_late: false },
        }
    }

    /// Begins to look at the mark, and to write it anew, as it is time.
    pub fn renew(&mut self) {
        if self.state == State::Held {
            self.state = State::Check;
        }
    }

    /// The mark of a device that is used could not be read, or perhaps not be written: that says
    /// nothing about others, and is tried again with the next renewal.
    pub fn failed(&mut self) {
        let is_lost = self.state == State::Renew && self.lease_ms == 0 && self.is_late();
        self.state = match self.state {
            State::Busy | State::Lost => return,
            _ if is_lost => State::Lost,
            _ if self.has_held => State::Held,
            _ => State::Busy,
        };
    }
}
