// SPDX-License-Identifier: GPL-2.0

//! The availability of a session: its connected paths, its outages, and when its devices are opened
//! again.
//!
//! ```text
//!   path_up, the first:  the upper layer makes the session usable (`reopening`), which sleeps;
//!   reopened, it did:    IO goes on; it did not: again later; another outage since: nothing
//!   path_down, the last: an outage begins
//! ```

use super::{
    outage::{
        Effect,
        Event,
        FastIoFail,
        Outage, //
    },
    quarantine, //
};

/// Pause before another try to make the session usable, in milliseconds.
pub const REOPEN_AGAIN_MS: u32 = 1000;

/// The paths and outages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
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

/// The result of a try to make the session usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reopened {
    /// The session is usable: carry this out.
    Usable(Effect),
    /// It is tried again after [`REOPEN_AGAIN_MS`].
    Again,
    /// Another outage has begun meanwhile, and its end starts a try.
    Late,
}

impl Availability {
    /// A session that is being opened.
    pub const NEW: Self = Self {
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

    /// Counts a path that is connected; returns whether it is the first, so that the session must
    /// be made usable.
    pub fn path_up(&mut self) -> bool {
        self.paths = self.paths.saturating_add(1);
        self.paths == 1
    }

    /// Counts a path that is lost; returns whether it was the last, so that an outage begins.
    pub fn path_down(&mut self) -> bool {
        self.paths = self.paths.saturating_sub(1);
        self.paths == 0
    }

    /// Begins an outage: no path is connected. The upper layer requeues its requests before it
    /// learns of the effect.
    pub fn begin_outage(&mut self, now_ms: u64, setting: FastIoFail, is_away: bool) -> Effect {
        self.outages = self.outages.wrapping_add(1);
        let setting = quarantine::outage_setting(setting, is_away);
        self.step(Event::LastPathDown { now_ms, setting })
    }

    /// Begins a try to make the session usable; returns `None` if no path is connected.
    pub fn reopening(&self) -> Option<Reopening> {
        self.is_connected().then_some(Reopening {
            outages: self.outages,
        })
    }

    /// Handles the end of a try to make the session usable, which `succeeded` or not.
    pub fn reopened(&mut self, reopening: Reopening, succeeded: bool) -> Reopened {
        if reopening.outages != self.outages {
            Reopened::Late
        } else if succeeded {
            Reopened::Usable(self.step(Event::PathUp))
        } else {
            Reopened::Again
        }
    }

    /// Handles another event of the outage.
    pub fn step(&mut self, event: Event) -> Effect {
        let (next, effect) = self.outage.step(event);
        self.outage = next;
        effect
    }
}
