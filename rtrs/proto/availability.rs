// SPDX-License-Identifier: GPL-2.0

//! The availability of a session: its connected paths, its outages, and when its devices are opened
//! again.
//!
//! ```text
//!   PathUp, the first:  the upper layer makes the session usable (`reopening`), which sleeps;
//!   Reopened, it did:   IO goes on; it did not: again later; another outage since: nothing
//!   PathDown, the last: an outage begins
//! ```
//!
//! The driver keeps an [`Availability`] under a mutex, calls [`Availability::step`] for each event,
//! and carries the effect out before it releases the mutex.

pub mod record;

use super::{
    outage::{
        self,
        FastIoFail,
        Outage, //
    },
    shortage, //
};

/// Pause before another try to make the session usable, in milliseconds.
pub const REOPEN_AGAIN_MS: u32 = 1000;

/// The paths and outages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The upper layer gets events.
    is_open: bool,
    /// Paths that are connected.
    paths: u32,
    outage: Outage,
    /// Outages so far.
    outages: u32,
}

/// The connect of a path, from before it is validated: the outages so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    outages: u32,
}

/// A try to make the session usable: which outage it is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopening {
    outages: u32,
}

/// The conditions on which an outage depends that begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// The time.
    pub now_ms: u64,
    /// `fast_io_fail_tmo`.
    pub setting: FastIoFail,
    /// The client itself has ended its paths for a moment.
    pub is_away: bool,
}

/// The events of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session is open: its upper layer gets events from now on.
    Opened(Conditions),
    /// IO was admitted to a path that is connected.
    PathUp,
    /// A path that was up is lost.
    PathDown(Conditions),
    /// A try to make the session usable has ended.
    Reopened {
        /// The try.
        reopening: Reopening,
        /// The session is usable.
        succeeded: bool,
    },
    /// The deadline of the outage, its setting, or the end of the session.
    Outage(outage::Event),
}

/// The actions of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do nothing.
    Ignore,
    /// The upper layer requeues its requests; then carry this out.
    BeginOutage(outage::Effect),
    /// Carry this out.
    Outage(outage::Effect),
    /// Have the upper layer make the session usable, after this time.
    ReopenIn {
        /// Milliseconds.
        pause_ms: u32,
    },
}

impl Availability {
    /// A session that is being opened.
    pub const NEW: Self = Self {
        is_open: false,
        paths: 0,
        outage: Outage::Up,
        outages: 0,
    };

    /// Returns whether a path is connected. Then a further path is validated before it carries IO;
    /// else everything is agreed upon anew before a request leaves.
    pub const fn is_connected(&self) -> bool {
        self.paths > 0
    }

    /// Begins the admission of a path that is connected and carries no IO yet.
    pub const fn admission(&self) -> Admission {
        Admission {
            outages: self.outages,
        }
    }

    /// Returns whether a path may carry IO. What was found out about its server before an outage
    /// says nothing about the server with which everything was agreed upon since.
    pub const fn admits(&self, admission: Admission) -> bool {
        !self.is_connected() || admission.outages == self.outages
    }

    /// Returns the state of the IO.
    pub const fn outage(&self) -> Outage {
        self.outage
    }

    /// Begins a try to make the session usable; returns `None` if no path is connected.
    pub fn reopening(&self) -> Option<Reopening> {
        self.is_connected().then_some(Reopening {
            outages: self.outages,
        })
    }

    /// Handles an event: changes the state and returns the action.
    pub fn step(&mut self, event: Event) -> Effect {
        match event {
            Event::Opened(conditions) => {
                self.is_open = true;
                self.check_paths(&conditions)
            }
            Event::PathUp => {
                self.paths = self.paths.saturating_add(1);
                if self.paths == 1 && self.is_open {
                    Effect::ReopenIn { pause_ms: 0 }
                } else {
                    Effect::Ignore
                }
            }
            Event::PathDown(conditions) => {
                self.paths = self.paths.saturating_sub(1);
                self.check_paths(&conditions)
            }
            Event::Reopened {
                reopening,
                succeeded,
            } => self.reopened(reopening, succeeded),
            Event::Outage(event) => {
                if event == outage::Event::Closed {
                    self.is_open = false;
                }
                Effect::Outage(self.change(event))
            }
        }
    }

    /// Begins an outage if no path is connected.
    fn check_paths(&mut self, conditions: &Conditions) -> Effect {
        if self.is_connected() || !self.is_open {
            return Effect::Ignore;
        }
        self.outages = self.outages.wrapping_add(1);
        Effect::BeginOutage(self.change(outage::Event::LastPathDown {
            now_ms: conditions.now_ms,
            setting: shortage::outage_setting(conditions.setting, conditions.is_away),
        }))
    }

    fn reopened(&mut self, reopening: Reopening, succeeded: bool) -> Effect {
        // Another outage that has begun meanwhile starts a try when it ends.
        if !self.is_open || reopening.outages != self.outages {
            Effect::Ignore
        } else if succeeded {
            Effect::Outage(self.change(outage::Event::PathUp))
        } else {
            Effect::ReopenIn {
                pause_ms: REOPEN_AGAIN_MS,
            }
        }
    }

    fn change(&mut self, event: outage::Event) -> outage::Effect {
        let (next, effect) = self.outage.step(event);
        self.outage = next;
        effect
    }
}
