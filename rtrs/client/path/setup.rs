// SPDX-License-Identifier: GPL-2.0

//! The progress of a path's set-up: event handlers report to it, the connecting task waits for it.
//!
//! The steps of a set-up strictly follow one another, so there is one thing to wait for at a time.

use kernel::prelude::*;
use kernel_ext::{
    new_irq_lock,
    sync::{
        Completion,
        IrqLock, //
    },
};
use rtrs_core::proto::handshake::Accepted;

use crate::client::path::error::PathError;

/// A step of the set-up that an event ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The peer's address is resolved.
    Address,
    /// The route is resolved.
    Route,
    /// The server has accepted.
    Accept,
    /// Blocks of read buffers are registered.
    Registration,
    /// The info response has arrived.
    Info,
    /// The server has drained a life that was given up.
    Fence,
}

impl Step {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Address => "address resolution",
            Step::Route => "route resolution",
            Step::Accept => "connect",
            Step::Registration => "registration of the read buffers",
            Step::Info => "info exchange",
            Step::Fence => "fence message",
        }
    }
}

struct Reached {
    /// The last step that ended, and its connection.
    step: Option<(u16, Step)>,
    /// The values that the server granted on the last accepted connection.
    accepted: Option<Accepted>,
    /// Bytes of the info response.
    info_len: u32,
    /// The first error of this attempt.
    fault: Option<PathError>,
    /// Whether the connecting task waits for the peer's address.
    awaits_address: bool,
}

impl Reached {
    const NOTHING: Self = Self {
        step: None,
        accepted: None,
        info_len: 0,
        fault: None,
        awaits_address: false,
    };
}

/// The state that event handlers and the connecting task share.
#[pin_data]
pub(crate) struct Setup {
    #[pin]
    reached: IrqLock<Reached>,
    #[pin]
    woken: Completion,
}

impl Setup {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            reached <- new_irq_lock!(Reached::NOTHING),
            woken <- Completion::new(),
        })
    }

    /// Resets the state for a new attempt.
    pub(crate) fn begin(&self) {
        *self.reached.lock() = Reached::NOTHING;
    }

    /// Prepares for the next step, which the caller is about to start. An earlier error stays.
    pub(crate) fn expect(&self) {
        self.woken.reinit();
        self.reached.lock().step = None;
    }

    /// Reports that a step has succeeded. Any context.
    pub(crate) fn reached(&self, cid: u16, step: Step) {
        self.reached.lock().step = Some((cid, step));
        self.woken.complete_all();
    }

    /// Reports that the server has accepted a connection.
    pub(crate) fn accepted(&self, cid: u16, accepted: Accepted) {
        self.reached.lock().accepted = Some(accepted);
        self.reached(cid, Step::Accept);
    }

    /// Reports that blocks of read buffers are registered.
    pub(crate) fn registered(&self) {
        self.reached(0, Step::Registration);
    }

    /// Reports that the info response has arrived, of `len` bytes.
    pub(crate) fn informed(&self, len: u32) {
        self.reached.lock().info_len = len;
        self.reached(0, Step::Info);
    }

    /// Fails the attempt; the first error counts. Any context.
    pub(crate) fn failed(&self, fault: PathError) {
        self.reached.lock().fault.get_or_insert(fault);
        self.woken.complete_all();
    }

    /// Fails the attempt if the connecting task waits for the peer's address.
    pub(crate) fn give_up_address(&self) {
        let mut reached = self.reached.lock();
        if reached.awaits_address {
            reached.fault.get_or_insert(PathError::LinkIsUp);
            drop(reached);
            self.woken.complete_all();
        }
    }

    /// Returns what the server granted last.
    pub(crate) fn granted(&self) -> Option<Accepted> {
        self.reached.lock().accepted
    }

    /// Returns the length of the info response in bytes.
    pub(crate) fn info_len(&self) -> u32 {
        self.reached.lock().info_len
    }

    /// Returns the error of the attempt, if it has failed.
    pub(crate) fn fault(&self) -> Option<PathError> {
        self.reached.lock().fault
    }

    /// Waits at most `timeout_ms` for a step to end; sleeps, and a fatal signal ends it.
    pub(crate) fn wait(&self, cid: u16, step: Step, timeout_ms: u32) -> Result<(), PathError> {
        loop {
            {
                let mut reached = self.reached.lock();
                reached.awaits_address = step == Step::Address;
                if let Some(fault) = reached.fault {
                    return Err(fault);
                }
                if reached.step == Some((cid, step)) {
                    return Ok(());
                }
            }
            match self.woken.wait_killable_timeout_ms(timeout_ms) {
                Ok(()) => {}
                Err(e) if e == ETIMEDOUT => return Err(PathError::Timeout(step.name())),
                Err(_) => return Err(PathError::Killed),
            }
            // The next iteration sees what came before this.
            self.woken.reinit();
        }
    }
}
