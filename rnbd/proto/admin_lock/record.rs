// SPDX-License-Identifier: GPL-2.0

//! The records of the admin lock of a session.

use ferro_proto::{
    record::Machine,
    words, //
};

use super::{
    LockMode,
    LockState,
    Waiting, //
};

/// The events of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread asks for the lock: see [`LockState::lock`].
    Lock(LockMode),
    /// A thread releases the lock: see [`LockState::unlock`].
    Unlock,
    /// A thread that waits asks again: see [`LockState::retry`].
    Retry(LockMode),
    /// A thread waits no longer: see [`LockState::give_up`].
    GiveUp(LockMode),
}

/// The next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends OPEN under the lock.
    Open(LockMode),
    /// Uses the number in the answer for the requests of a device, under the lock.
    Use(LockMode),
    /// Sends CLOSE under the lock.
    Close(LockMode),
    /// Wakes the threads that wait for the lock.
    Wake,
}

impl Machine for LockState {
    // The name in the records.
    const NAME: &'static str = "turns";
    type Event = Event;
    type Effect = bool;
    type Operation = Operation;

    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Lock(mode) => self.lock(mode),
            Event::Unlock => self.unlock(),
            Event::Retry(mode) => self.retry(mode),
            Event::GiveUp(mode) => self.give_up(mode),
        }
    }
}

words!(struct LockState { mode, count, waiting, turn, let_in });

words!(struct Waiting { opens, closes, validations });

words!(enum LockMode { 1 => Open, 2 => Close, 3 => Validate });

words!(enum Event { 1 => Lock(mode), 2 => Unlock, 3 => Retry(mode), 4 => GiveUp(mode) });

words!(enum Operation { 1 => Open(mode), 2 => Use(mode), 3 => Close(mode), 4 => Wake });
