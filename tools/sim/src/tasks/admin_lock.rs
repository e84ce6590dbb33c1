// SPDX-License-Identifier: GPL-2.0

//! The admin lock of a client: which of its tasks may send at a time.
//!
//! Stands for `rnbd/client/session/admin_lock.rs`. The decisions are those of `rnbd`'s
//! `admin_lock`.

use proto::common::errno::Errno;
use proto::rnbd::admin_lock::LockMode;
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

/// The mode in which a task holds the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    mode: Option<LockMode>,
    /// The mode for which the task waits.
    pub(super) waits: Option<LockMode>,
}

impl Purpose {
    /// Returns the mode in which a task sends a message.
    fn lock_mode(&self, step: Step) -> Option<LockMode> {
        match (self, step) {
            (Self::Validate { .. }, _) => Some(LockMode::Validate),
            (_, Step::Info(Some(_)) | Step::Open(_)) => Some(LockMode::Open),
            (_, Step::Close(_)) => Some(LockMode::Close),
            _ => None,
        }
    }
}

impl World {
    /// Says whether a task may send its next message; otherwise it waits.
    pub(super) fn has_lock(&mut self, number: u64) -> bool {
        let broken = self.settings.broken(Mutation::NoLock);
        let client = &mut self.clients[self.at];
        let Some(task) = client.tasks.get(number) else {
            return true;
        };
        let Some(step) = task.steps.front().copied() else {
            return true;
        };
        // Each OPEN, with its question for the server's boot, takes the lock anew.
        let is_opening = matches!(step, Step::Info(Some(_)));
        let wanted = task.purpose.lock_mode(step);
        if task.held.mode == wanted && !is_opening {
            return true;
        }
        self.release_lock(number);
        let client = &mut self.clients[self.at];
        let Some(task) = client.tasks.list.get_mut(&number) else {
            return true;
        };
        let waited = task.held.waits.is_some();
        let mut take = |mode| match waited {
            true => client.admin_lock.retry(mode),
            false => client.admin_lock.lock(mode),
        };
        let is_free = wanted.is_none_or(|mode| take(mode) || broken);
        task.held.waits = wanted.filter(|_| !is_free);
        if is_free {
            task.held.mode = wanted.filter(|_| !broken);
            return true;
        }
        if !waited {
            task.step += 1;
            let step = task.step;
            let limit_ms = match wanted {
                Some(LockMode::Validate) => ONE_PATH_ANSWER_MS.into(),
                _ => 2 * ANSWER_MS,
            };
            self.trace.reached("a message waits for the admin lock");
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
        devices.any(|d| d.io_state.is_number(number)) && !self.settings.broken(Mutation::NoLock)
    }

    /// Checks whether a device may be used with the number that the server has given it:
    /// `Session::check_number`.
    pub(super) fn check_number(&mut self, number: u32) -> Result<(), Errno> {
        let now_ms = self.now_ms();
        let broken = self.settings.broken(Mutation::NoDoubts);
        let client = &mut self.clients[self.at];
        let held = client.quarantine.held();
        if !client.lost_closes.include(number, held != 0) || broken {
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

    /// Releases the lock, if the task holds it.
    pub(super) fn release_lock(&mut self, number: u64) {
        let client = &mut self.clients[self.at];
        let held = client.tasks.get(number).and_then(|t| t.held.mode.take());
        if held.is_some() && client.admin_lock.unlock() {
            self.after(0, Event::Unlocked);
        }
    }

    /// Tasks that wait for the lock try again.
    pub(crate) fn lock_released(&mut self) {
        let tasks = &self.clients[self.at].tasks.list;
        let waiting = tasks.iter().filter(|(_, t)| t.held.waits.is_some());
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            self.next_step(number);
        }
    }

    /// A task has waited for the lock for too long.
    pub(super) fn lock_timed_out(&mut self, number: u64) {
        self.trace.reached("the admin lock is not released");
        let client = &mut self.clients[self.at];
        let Some(task) = client.tasks.list.get_mut(&number) else {
            return;
        };
        let waited = task.held.waits.take();
        let is_free = waited.is_some_and(|mode| client.admin_lock.give_up(mode));
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
        if is_free {
            self.after(0, Event::Unlocked);
        }
        self.next_step(number);
    }
}
