// SPDX-License-Identifier: GPL-2.0

//! The stages that requests have reached.

use super::super::queue::{
    Ticket,
    Tickets, //
};

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Waits for other requests, or for slots.
    Waiting,
    /// Waits for its PI blocks.
    Load,
    /// Writes a fresh block: waits for a flush.
    Fresh,
    /// Waits for a record, or a flush.
    Ready,
    /// Its record, or its flush, is in flight.
    Started,
    /// Its data may be read or written.
    Data,
    /// Its data are being read or written.
    InData,
    /// Its data must be read back.
    Failed,
    /// Its data are being read back.
    InReadBack,
    /// The request has ended; `true` without an error.
    Done(bool),
}

impl Stage {
    const COUNT: usize = 10;

    const fn index(self) -> usize {
        match self {
            Self::Waiting => 0,
            Self::Load => 1,
            Self::Fresh => 2,
            Self::Ready => 3,
            Self::Started => 4,
            Self::Data => 5,
            Self::InData => 6,
            Self::Failed => 7,
            Self::InReadBack => 8,
            Self::Done(_) => 9,
        }
    }
}

/// The requests at each stage, so that the others need not be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stages([Tickets; Stage::COUNT]);

impl Stages {
    /// No requests.
    pub(super) const NONE: Self = Self([Tickets::NONE; Stage::COUNT]);

    /// Returns the requests at a stage.
    pub(super) fn at(&self, stage: Stage) -> Tickets {
        self.0.get(stage.index()).copied().unwrap_or_default()
    }

    /// Returns the requests at one of these stages.
    pub(super) fn at_one_of<const N: usize>(&self, stages: [Stage; N]) -> Tickets {
        let all = stages.iter().map(|stage| self.at(*stage));
        all.fold(Tickets::NONE, Tickets::or)
    }

    /// A request comes to a stage.
    pub(super) fn insert(&mut self, stage: Stage, ticket: Ticket) {
        if let Some(tickets) = self.0.get_mut(stage.index()) {
            tickets.insert(ticket);
        }
    }

    /// A request leaves its stage.
    pub(super) fn remove(&mut self, stage: Stage, ticket: Ticket) {
        if let Some(tickets) = self.0.get_mut(stage.index()) {
            tickets.remove(ticket);
        }
    }
}
