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

/// The modes in which the threads of a driver hold the lock.
#[derive(Default)]
pub(crate) struct Taken(Vec<LockMode>);

impl Rules for Taken {
    type Machine = LockState;

    const FIRST: LockState = LockState::NONE;

    fn operations(event: &Event, is_free: &bool) -> Vec<Operation> {
        match event {
            Event::Unlock if *is_free => vec![Operation::Wake],
            Event::Unlock | Event::Lock(_) => vec![],
        }
    }

    fn is_under_lock(_operation: &Operation) -> bool {
        false
    }

    fn check(&self, _state: &LockState, event: &Event) -> Result<(), String> {
        match event {
            Event::Unlock if self.0.is_empty() => {
                Err("the lock is released that was not taken".into())
            }
            Event::Unlock | Event::Lock(_) => Ok(()),
        }
    }

    fn stepped(&mut self, event: &Event, is_free: &bool) {
        match event {
            Event::Lock(mode) if *is_free => self.0.push(*mode),
            // All that are taken are of one kind.
            Event::Unlock => drop(self.0.pop()),
            Event::Lock(_) => {}
        }
    }

    fn may(&self, _state: &LockState, operation: &Operation) -> Result<bool, String> {
        let fits = match operation {
            Operation::Open(mode @ (LockMode::Open | LockMode::Validate))
            | Operation::Use(mode @ LockMode::Open)
            | Operation::Close(mode @ (LockMode::Close | LockMode::Validate)) => {
                self.0.contains(mode)
            }
            Operation::Wake => return Ok(false),
            Operation::Open(_) | Operation::Use(_) | Operation::Close(_) => false,
        };
        match fits {
            true => Ok(true),
            false => Err(format!("the lock is held in {:?}", self.0)),
        }
    }

    fn done(&mut self, _operation: &Operation) {}

    fn end(&self, _state: &LockState) -> Result<(), String> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(format!("the lock in {:?} is not released", self.0)),
        }
    }
}
