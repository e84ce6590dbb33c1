// SPDX-License-Identifier: GPL-2.0

//! The admin lock of a session of `rnbd_client`: `rnbd/client/session/admin_lock.rs`.

use proto::rnbd::admin_lock::{
    record::{
        Event,
        Operation, //
    },
    LockMode,
    LockState, //
};

use crate::replay::Rules;

/// The modes in which the threads of a driver hold the lock, and those in which they wait for it.
#[derive(Default)]
pub(crate) struct Taken {
    held: Vec<LockMode>,
    waiting: Vec<LockMode>,
}

impl Taken {
    fn leaves(&mut self, mode: LockMode) {
        let index = self.waiting.iter().position(|waits| *waits == mode);
        index.map(|index| self.waiting.remove(index));
    }
}

impl Rules for Taken {
    type Machine = LockState;

    const FIRST: LockState = LockState::NONE;

    fn operations(event: &Event, is_free: &bool) -> Vec<Operation> {
        match event {
            Event::Unlock | Event::GiveUp(_) if *is_free => vec![Operation::Wake],
            Event::Unlock | Event::GiveUp(_) | Event::Lock(_) | Event::Retry(_) => vec![],
        }
    }

    fn is_under_lock(_operation: &Operation) -> bool {
        false
    }

    fn check(&self, _state: &LockState, event: &Event) -> Result<(), String> {
        match event {
            Event::Unlock if self.held.is_empty() => {
                Err("the lock is released that was not taken".into())
            }
            Event::Retry(mode) | Event::GiveUp(mode) if !self.waiting.contains(mode) => {
                Err(format!("none waits for the lock in {mode:?}"))
            }
            Event::Unlock | Event::Lock(_) | Event::Retry(_) | Event::GiveUp(_) => Ok(()),
        }
    }

    fn stepped(&mut self, event: &Event, is_free: &bool) {
        match event {
            Event::Lock(mode) if *is_free => self.held.push(*mode),
            Event::Lock(mode) => self.waiting.push(*mode),
            Event::Retry(mode) if *is_free => {
                self.leaves(*mode);
                self.held.push(*mode);
            }
            Event::Retry(_) => {}
            Event::GiveUp(mode) => self.leaves(*mode),
            // All that are taken are of one kind.
            Event::Unlock => drop(self.held.pop()),
        }
    }

    fn may(&self, _state: &LockState, operation: &Operation) -> Result<bool, String> {
        let fits = match operation {
            Operation::Open(mode @ (LockMode::Open | LockMode::Validate))
            | Operation::Use(mode @ LockMode::Open)
            | Operation::Close(mode @ (LockMode::Close | LockMode::Validate)) => {
                self.held.contains(mode)
            }
            Operation::Wake => return Ok(false),
            Operation::Open(_) | Operation::Use(_) | Operation::Close(_) => false,
        };
        match fits {
            true => Ok(true),
            false => Err(format!("the lock is held in {:?}", self.held)),
        }
    }

    fn done(&mut self, _operation: &Operation) {}

    fn end(&self, _state: &LockState) -> Result<(), String> {
        match (self.held.is_empty(), self.waiting.is_empty()) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("the lock in {:?} is not released", self.held)),
            (_, false) => Err(format!("threads in {:?} wait without end", self.waiting)),
        }
    }
}
