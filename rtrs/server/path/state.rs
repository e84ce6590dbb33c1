// SPDX-License-Identifier: GPL-2.0

//! The state of a path.

use kernel::prelude::*;
use kernel_ext::{
    new_irq_lock,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU8,
            Ordering::SeqCst, //
        },
        IrqLock, //
    },
};
use rtrs_core::proto::path::{
    record::Operation,
    ServerEffect,
    ServerEvent,
    ServerState, //
};

use crate::server::trace::Traced;

/// The state of a path: its machine, and what requests read of it.
#[pin_data]
pub(crate) struct State {
    /// A [`ServerState`]; written with the lock of `machine` held.
    shown: AtomicU8,
    /// The path was closed because of an error, possibly of the link; set before the state shows
    /// that it is closing.
    has_failed: AtomicBool,
    #[pin]
    machine: IrqLock<Traced<ServerState>>,
}

impl State {
    /// Creates the state of a new path.
    pub(super) fn new() -> impl PinInit<Self> {
        let first = ServerState::Connecting;
        pin_init!(Self {
            shown: AtomicU8::new(first as u8),
            has_failed: AtomicBool::new(false),
            machine <- new_irq_lock!(Traced::new(first), "State::machine"),
        })
    }

    /// Returns the state. Any context.
    pub(super) fn get(&self) -> ServerState {
        ServerState::from_u8(self.shown.load(SeqCst)).unwrap_or(ServerState::Closed)
    }

    /// Returns whether requests are served. Any context.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.shown.load(SeqCst) == ServerState::Connected as u8
    }

    /// Applies an event; returns what the caller must do. Any context.
    #[cold]
    pub(super) fn step(&self, event: ServerEvent) -> ServerEffect {
        let mut machine = self.machine.lock();
        let effect = machine.step(event);
        self.shown.store(**machine as u8, SeqCst);
        effect
    }

    /// Closes the path because of an error; returns whether the caller has to have it torn down.
    /// Any context.
    #[cold]
    pub(super) fn fail(&self) -> bool {
        let mut machine = self.machine.lock();
        let is_first = machine.step(ServerEvent::Close) == ServerEffect::TearDown;
        if is_first {
            self.has_failed.store(true, SeqCst);
        }
        self.shown.store(**machine as u8, SeqCst);
        is_first
    }

    /// Returns whether an error has closed the path. Any context.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(SeqCst)
    }

    /// Records what is about to be done. Any context.
    #[cold]
    pub(super) fn did(&self, operation: Operation) {
        self.machine.lock().did(operation);
    }
}
