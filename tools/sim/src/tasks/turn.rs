// SPDX-License-Identifier: GPL-2.0

//! The turns of a client's tasks: which of them may send at a time.
//!
//! Stands for `rnbd/client/session/turn.rs`. The decisions are those of `rnbd`'s `turns`.

use proto::common::errno::Errno;
use proto::rnbd::turns::Turn;
use proto::rtrs::timeouts::ONE_PATH_ANSWER_MS;

use super::{
    Purpose,
    Step,
    ANSWER_MS, //
};
use crate::{
    event::{
        Event,
        MS, //
    },
    settings::Mutation,
    trace::note,
    world::World, //
};

/// The turn of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    turn: Option<Turn>,
    /// It waits for one.
    pub(super) waits: bool,
}

impl Purpose {
    /// The turn in which a task sends a message.
    fn turn(&self, step: Step) -> Option<Turn> {
        match (self, step) {
            (Self::Validate { .. }, _) => Some(Turn::Survey),
            (_, Step::Info(Some(_)) | Step::Open(_)) => Some(Turn::Open),
            (_, Step::Close(_)) => Some(Turn::Close),
            _ => None,
        }
    }
}

impl World {
    /// Says whether a task may send its next message; otherwise it waits.
    pub(super) fn has_turn(&mut self, number: u64) -> bool {
        let broken = self.settings.broken(Mutation::NoTurns);
        let client = &mut self.clients[self.at];
        let Some(task) = client.tasks.get(number) else {
            return true;
        };
        let Some(step) = task.steps.front().copied() else {
            return true;
        };
        // Each OPEN, with its question for the server's boot, has a turn of its own.
        let is_opening = matches!(step, Step::Info(Some(_)));
        let wanted = task.purpose.turn(step);
        if task.held.turn == wanted && !is_opening {
            return true;
        }
        self.end_turn(number);
        let client = &mut self.clients[self.at];
        let is_free = wanted.is_none_or(|turn| client.turns.take(turn) || broken);
        let Some(task) = client.tasks.get(number) else {
            return true;
        };
        let waited = task.held.waits;
        task.held.waits = !is_free;
        if is_free {
            task.held.turn = wanted.filter(|_| !broken);
            return true;
        }
        if !waited {
            task.step += 1;
            let step = task.step;
            let limit_ms = match wanted {
                Some(Turn::Survey) => ONE_PATH_ANSWER_MS.into(),
                _ => 2 * ANSWER_MS,
            };
            self.trace.reached("a message waits for its turn");
            note!(self, Client, "task {number} waits for {wanted:?}");
            let timeout = Event::TaskTimeout { task: number, step };
            self.after(limit_ms * MS, timeout);
        }
        false
    }

    /// Says whether a message would close a device under the number that it is used with:
    /// `Session::close_number`.
    pub(super) fn closes_used(&self, step: Step) -> bool {
        let number = match step {
            Step::Close(number) | Step::CloseOthers(number) => number,
            _ => return false,
        };
        let mut devices = self.clients[self.at].devices.iter();
        devices.any(|d| d.io_state.is_number(number)) && !self.settings.broken(Mutation::NoTurns)
    }

    /// Checks whether a device may be used with the number that the server has given it:
    /// `Session::check_number`.
    pub(super) fn check_number(&mut self, number: u32) -> Result<(), Errno> {
        let now_ms = self.now_ms();
        let broken = self.settings.broken(Mutation::NoDoubts);
        let client = &mut self.clients[self.at];
        let held = client.quarantine.held();
        if !client.doubts.include(number, held != 0) || broken {
            return Ok(());
        }
        self.trace.reached("a number is in doubt");
        match self.settings.broken(Mutation::ForgetDevice) {
            true => client.shortage.refused(now_ms),
            false => client.shortage.needed(now_ms, held),
        }
        // It stays open there.
        Err(Errno::ECONNABORTED)
    }

    /// Ends the turn of a task, if it has one.
    pub(super) fn end_turn(&mut self, number: u64) {
        let client = &mut self.clients[self.at];
        let held = client.tasks.get(number).and_then(|t| t.held.turn.take());
        if held.is_some() && client.turns.end() {
            self.after(0, Event::TurnsEnded);
        }
    }

    /// Tasks that wait for their turn try again.
    pub(crate) fn turns_ended(&mut self) {
        let tasks = &self.clients[self.at].tasks.list;
        let waiting = tasks.iter().filter(|(_, t)| t.held.waits);
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            self.next_step(number);
        }
    }

    /// A task has waited for its turn for too long.
    pub(super) fn no_turn(&mut self, number: u64) {
        self.trace.reached("a turn does not come");
        let Some(task) = self.clients[self.at].tasks.get(number) else {
            return;
        };
        task.held.waits = false;
        task.failed = true;
        match task.purpose {
            Purpose::Validate { .. } => {
                task.verdict = Some(Err(Errno::EBUSY));
                task.steps.clear();
            }
            _ => {
                // An OPEN has two messages.
                if matches!(task.steps.pop_front(), Some(Step::Info(_))) {
                    task.steps.pop_front();
                }
            }
        }
        self.next_step(number);
    }
}
