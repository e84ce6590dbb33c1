// SPDX-License-Identifier: GPL-2.0

//! Events that tell user space of changes of an array.

use seglog::members::{
    Members,
    DATA_COLUMNS,
    MEMBERS, //
};

use super::{
    Array,
    Memory, //
};

/// The percentages of use that are told, the highest one first.
const THRESHOLDS: [u8; 3] = [95, 90, 80];
/// A threshold is left when use is so much below it: one that is passed to and fro is told once.
const HYSTERESIS: u8 = 5;

/// The state of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Members in sync.
    pub live: Members,
    /// Members that are written and not in sync yet.
    pub returning: Members,
}

/// The state of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All members are in sync.
    Clean,
    /// One member is missing.
    Degraded(usize),
    /// One member returns.
    Resyncing(usize),
    /// Fewer members are in sync than it takes.
    Failed,
}

impl State {
    /// Returns the word that files and events have for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Degraded(_) => "degraded",
            Self::Resyncing(_) => "resyncing",
            Self::Failed => "failed",
        }
    }
}

impl View {
    /// Returns the state of the array.
    pub fn state(self) -> State {
        let missing = Members::ALL.minus(self.live.or(self.returning));
        if self.live.count() < DATA_COLUMNS {
            State::Failed
        } else if let Some(member) = self.returning.iter().next() {
            State::Resyncing(member)
        } else {
            missing.iter().next().map_or(State::Clean, State::Degraded)
        }
    }

    /// Returns the word for a member.
    pub fn member(self, member: usize) -> &'static str {
        if self.live.contains(member) {
            "in_sync"
        } else if self.returning.contains(member) {
            "resyncing"
        } else {
            "missing"
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member is another than it was.
    Member(usize),
    /// The hundredths of what the members hold that are in use: a threshold was passed.
    Used(u8),
}

/// Changes that user space has not been told yet, and the state that they have led to.
///
/// An event says what is, not what was: of changes that follow each other faster than they can be
/// told, the last one is. So this has a size, however long no event can be sent.
#[derive(Clone, Copy, Debug)]
pub struct News {
    view: View,
    used: u8,
    threshold: u8,
    untold: Members,
    is_use_untold: bool,
}

impl Default for News {
    /// All is well, as is assumed of a disk that appears.
    fn default() -> Self {
        Self {
            view: View {
                live: Members::ALL,
                returning: Members::NONE,
            },
            used: 0,
            threshold: 0,
            untold: Members::NONE,
            is_use_untold: false,
        }
    }
}

impl News {
    /// Notes what is; whether something is to be told. `used` is `None` for a disk that never lacks
    /// room.
    pub fn note(&mut self, view: View, used: Option<u8>) -> bool {
        let changed = |member: &usize| view.member(*member) != self.view.member(*member);
        self.untold = self.untold.or((0..MEMBERS).filter(changed).collect());
        self.view = view;
        self.used = used.unwrap_or_default();
        let is_passed = |threshold: &&u8| {
            let hysteresis = if self.threshold >= **threshold {
                HYSTERESIS
            } else {
                0
            };
            self.used.saturating_add(hysteresis) >= **threshold
        };
        let threshold = THRESHOLDS.iter().find(is_passed).copied();
        let threshold = threshold.unwrap_or_default();
        self.is_use_untold |= threshold != self.threshold;
        self.threshold = threshold;
        self.is_use_untold || !self.untold.is_empty()
    }

    /// Returns the next event, and what is now.
    pub fn next_event(&mut self) -> Option<(Event, View)> {
        let event = match self.untold.iter().next() {
            Some(member) => {
                self.untold = self.untold.minus(Members::of(member));
                Event::Member(member)
            }
            None if core::mem::take(&mut self.is_use_untold) => Event::Used(self.used),
            None => return None,
        };
        Some((event, self.view))
    }
}

impl<M: Memory> Array<M> {
    /// Returns the state of its members.
    pub fn view(&self) -> View {
        View {
            live: self.live(),
            returning: self.returning(),
        }
    }

    /// Returns how many hundredths of what its members hold are in use, if the disk promises more.
    pub fn used_percent(&self) -> Option<u8> {
        let percent = self.segments.live_bytes().saturating_mul(100);
        let percent = percent.checked_div(self.held_bytes?)?;
        Some(u8::try_from(percent).unwrap_or(u8::MAX))
    }
}
