// SPDX-License-Identifier: GPL-2.0

//! How far the set-up of a path has come: events report here, the connecting task waits here.
//!
//! The steps of a set-up follow one another strictly, so there is one thing to wait for at a time.

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
    /// The way to it is.
    Route,
    /// The server has accepted.
    Accept,
    /// The info response has arrived.
    Info,
}

impl Step {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Address => "address resolution",
            Step::Route => "route resolution",
            Step::Accept => "connect",
            Step::Info => "info exchange",
        }
    }
}

struct Reached {
    /// The step that ended last, and on which connection.
    step: Option<(u16, Step)>,
    /// What the server granted on the connection accepted last.
    accepted: Option<Accepted>,
    /// Bytes of the info response.
    info_len: u32,
    /// The first fault of this attempt.
    fault: Option<PathError>,
    /// What is waited for is the peer's address.
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

/// Where events and the connecting task meet.
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

    /// A new attempt begins: forgets everything.
    pub(crate) fn begin(&self) {
        *self.reached.lock() = Reached::NOTHING;
    }

    /// The next step is about to be started. A fault that came in between stays.
    pub(crate) fn expect(&self) {
        self.woken.reinit();
        self.reached.lock().step = None;
    }

    /// A step has ended well. Any context.
    pub(crate) fn reached(&self, cid: u16, step: Step) {
        self.reached.lock().step = Some((cid, step));
        self.woken.complete_all();
    }

    /// The server has accepted a connection.
    pub(crate) fn accepted(&self, cid: u16, accepted: Accepted) {
        self.reached.lock().accepted = Some(accepted);
        self.reached(cid, Step::Accept);
    }

    /// The info response has arrived, `len` bytes of it.
    pub(crate) fn informed(&self, len: u32) {
        self.reached.lock().info_len = len;
        self.reached(0, Step::Info);
    }

    /// The attempt is lost; the first reason counts. Any context.
    pub(crate) fn failed(&self, fault: PathError) {
        self.reached.lock().fault.get_or_insert(fault);
        self.woken.complete_all();
    }

    /// If it is the peer's address that is being waited for, the attempt is lost.
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

    /// Returns the reason for which the attempt is lost, if it is.
    pub(crate) fn fault(&self) -> Option<PathError> {
        self.reached.lock().fault
    }

    /// Waits for a step to end, `timeout_ms` at most; sleeps, and a fatal signal ends it.
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
            // What came before this is seen by the next look.
            self.woken.reinit();
        }
    }
}
