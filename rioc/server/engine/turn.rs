// SPDX-License-Identifier: GPL-2.0

//! Turns: of requests, and of what a store does by itself.

use super::{
    super::{
        medium::Kept,
        memory::Crc,
        message::message_of,
        reading::Scratch, //
    },
    request_of,
    Engine,
    State, //
};

/// The slots that are looked at in one step.
const TRIM_SLOTS: u32 = 4096;

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Turn {
    /// The request whose blocks are read without the lock; [`Engine::finish`] follows.
    Reads(u32),
    /// A step was taken.
    Done,
    /// No step is to be taken.
    Idle,
}

impl<D: Kept> Engine<D> {
    /// Takes a turn: of the next request, or of what is left to be done by itself.
    #[inline(never)]
    pub(in crate::server) fn turn(&mut self, scratch: &mut Scratch) -> Turn {
        self.settle();
        let is_due = self.turns.is_due();
        if is_due {
            self.turns.rest();
            if self.reap() || self.trim() {
                return Turn::Done;
            }
        }
        if let Some(turn) = self.next(scratch) {
            self.turns.request();
            return turn;
        }
        match !is_due && (self.reap() || self.trim()) {
            true => Turn::Done,
            false => Turn::Idle,
        }
    }

    /// Takes the turn of the next request. A step for which its bytes are not needed is taken at
    /// once; else `scratch` has what it needs, or says which blocks are read before. Returns `None`
    /// if there is none.
    #[inline(never)]
    fn next(&mut self, scratch: &mut Scratch) -> Option<Turn> {
        loop {
            let tag = self.acting.next()?;
            let request = request_of(&mut self.clients, tag);
            let Some(request) = request else { continue };
            match request.state {
                State::Arrives => self.begin(tag),
                // Another one has told that it begins.
                State::Waits | State::Runs => {
                    request.state = State::Stays;
                    let with = (&mut self.acting, &Crc);
                    let message = message_of(&request.operation).ok();
                    let ready = |message| self.store.ready(&mut request.op, &message, with);
                    if let Some(step) = message.and_then(ready) {
                        self.follow(tag, step, Ok(None));
                        return Some(Turn::Done);
                    }
                    let (operation, old) = (&mut request.operation, &request.old);
                    scratch.prepare(&mut *self.store, (operation, old));
                    return Some(Turn::Reads(tag));
                }
                State::Repeated | State::Stays | State::Files | State::Ended(_) => (),
            }
        }
    }

    /// Takes a step of what is left to be done; returns whether it has done something.
    fn reap(&mut self) -> bool {
        let is_reaping = self.store.index().is_reaping();
        let with = (&mut self.acting, &Crc);
        let is_done = is_reaping && self.store.reap(with).is_ok();
        if is_done {
            self.try_again();
        }
        is_done
    }

    /// Looks for objects that a restart has left to be cut; returns whether it is to go on.
    fn trim(&mut self) -> bool {
        let Some(from) = self.untrimmed else {
            return false;
        };
        let index = self.store.index();
        let is_left = |slot: &u32| {
            let object = index.slots().object(*slot);
            object.is_some_and(|object| object.is_shrinking)
        };
        let end = from.saturating_add(TRIM_SLOTS).min(index.slots().count());
        let found = (from..end).find(is_left);
        self.untrimmed = found.or((end < index.slots().count()).then_some(end));
        let with = (&mut self.acting, &Crc);
        match found {
            Some(slot) => {
                let is_done = self.store.trim(slot, with).is_ok();
                if is_done {
                    // Who writes behind its end waits for this.
                    self.try_again();
                }
                is_done
            }
            None => self.untrimmed.is_some(),
        }
    }
}
