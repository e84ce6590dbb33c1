// SPDX-License-Identifier: GPL-2.0

//! Waits for a turn to send OPEN or CLOSE, or to survey a path: see
//! [`turns`](crate::proto::turns).

use kernel::{
    prelude::*,
    sync::{
        new_spinlock,
        SpinLock, //
    },
};
use kernel_ext::{
    new_wait_queue,
    sync::WaitQueue, //
};

use crate::{
    client::trace::Traced,
    proto::turns::{
        record::{
            Event,
            Operation, //
        },
        Doubts,
        Turn,
        Turns, //
    },
};

/// The turns of a session that are taken.
#[pin_data]
pub(super) struct TurnTable {
    #[pin]
    taken: SpinLock<Traced<Turns>>,
    #[pin]
    ended: WaitQueue,
    #[pin]
    doubts: SpinLock<Doubts>,
}

impl TurnTable {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken <- new_spinlock!(Traced::new(Turns::NONE)),
            ended <- new_wait_queue!("TurnTable::ended"),
            doubts <- new_spinlock!(Doubts::NONE),
        })
    }

    /// Waits for a turn, at most `timeout_ms`; sleeps, and can be killed.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, or `ERESTARTSYS` when the thread is killed.
    pub(super) fn take(&self, turn: Turn, timeout_ms: u32) -> Result<TurnGuard<'_>> {
        let take = || self.taken.lock().step(Event::Take(turn));
        self.ended
            .wait_until_killable_timeout_ms(take, timeout_ms)?;
        Ok(TurnGuard { table: self, turn })
    }

    /// Records what is about to be done.
    fn did(&self, operation: Operation) {
        self.taken.lock().did(operation);
    }

    /// Records that a CLOSE has ended without an answer.
    pub(super) fn close_lost(&self, number: u32) {
        self.doubts.lock().add(number);
    }

    /// Returns whether a lost CLOSE may still end the device that the server has open under
    /// `number`.
    pub(super) fn is_in_doubt(&self, number: u32, is_any_lost: bool) -> bool {
        self.doubts.lock().include(number, is_any_lost)
    }
}

/// A turn, which ends when this is dropped.
pub(in crate::client) struct TurnGuard<'a> {
    table: &'a TurnTable,
    turn: Turn,
}

impl TurnGuard<'_> {
    /// Records that an OPEN is about to be sent.
    pub(in crate::client) fn opens(&self) {
        self.table.did(Operation::Open(self.turn));
    }

    /// Records that a number is about to be used for requests.
    pub(in crate::client) fn uses(&self) {
        self.table.did(Operation::Use(self.turn));
    }

    /// Records that a CLOSE is about to be sent.
    pub(super) fn closes(&self) {
        self.table.did(Operation::Close(self.turn));
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        let is_free = self.table.taken.lock().step(Event::End);
        if is_free {
            self.table.did(Operation::Wake);
            self.table.ended.wake_all();
        }
    }
}
