// SPDX-License-Identifier: GPL-2.0

//! A task that asks receives its answer itself, if it can. Most tasks are the only one that asks:
//! a worker would wait for the answer in place of the task, and then wake it.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::Link;
use crate::{
    net::call::Call,
    proto::conversation::Receiver, //
};

/// Implements what a task does that waits for its answer.
impl Link {
    /// Receives answers until that to `call` has come, if no other task and no worker receives. In
    /// any other case, and after a signal that kills the task, the worker does. Sleeps, killable.
    pub(super) fn lead(self: &Arc<Self>, call: &Call) {
        let Some(mut input) = self.input.try_lock() else {
            return self.kick();
        };
        while !self.follow_interrupts(&mut input) && !call.is_done() && self.is_answering() {
            match self.receive(&mut input) {
                Ok(()) => {}
                // What has been received of the answer stays: the worker receives the rest.
                Err(trouble) if trouble.error == ERESTARTSYS => break,
                Err(trouble) => self.receive_failed(trouble),
            }
        }
        self.end_input(input);
        if !self.is_idle() {
            self.kick();
        }
    }

    /// Returns whether the connection is there, and answers are under way.
    fn is_answering(&self) -> bool {
        let state = self.state.lock();
        state.machine.ready().is_some() && state.conversation.is_owed() && !state.is_condemned
    }

    /// Returns whether there is nothing to do for the worker.
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        let next = state.conversation.receiver(state.queue.len());
        state.queue.is_empty() && next == Receiver::Rest && state.awaited == 0
    }
}
