// SPDX-License-Identifier: GPL-2.0

//! Closes what the server may have opened without that the device uses it: see
//! [`doubt`](crate::proto::doubt).
//!
//! That waits for the end of a message, for a path, and for an answer, which no user does. So it is
//! done by a work item, as often as it takes. It does not keep the session: with its end the server
//! closes the devices.

use kernel::{
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::memory;
use rtrs_client::{
    Fate,
    Unheard, //
};

use super::{
    open::Known,
    Device, //
};
use crate::{
    client::{
        admin::NotOpened,
        session::AdminLockGuard, //
    },
    proto::{
        device::{
            Device as Remote,
            Server, //
        },
        doubt::{
            Heard,
            Settle,
            AGAIN_MS,
            END_MS, //
        },
        occasion::Occasion,
        path_validation::Answer, //
    },
};

/// The number of the work item among those of a device.
pub(super) const ITEM: u64 = 3;

impl_has_work! {
    impl HasWork<Self, ITEM> for Device { self.settle }
}

/// The result of a try to settle a doubt.
enum Tried {
    /// Nothing is left to be done.
    Settled,
    /// Another try is due, after the end of the question for the server's version, if that is under
    /// way.
    Again(Option<Unheard>),
}

impl WorkItem<ITEM> for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        memory::without_io(|| this.settle());
    }
}

impl Device {
    /// Notes what `server` has said to an OPEN. One of the C driver, which answers when the device
    /// does, is not asked once more.
    pub(super) fn note_heard(&self, server: &Server, opened: &Result<Remote, NotOpened>) {
        if !server.is_extended {
            return;
        }
        let (heard, unheard) = match opened {
            Ok(remote) => (Heard::Number(remote.device_id), None),
            Err(not_opened) => match (&not_opened.fate, not_opened.number) {
                (_, Some(number)) => (Heard::Number(number), None),
                (Fate::NotSent, None) => (Heard::NotSent, None),
                (Fate::Refused, None) => (Heard::Refused, None),
                (Fate::Unheard(unheard), None) => (Heard::Nothing, Some(unheard.clone())),
            },
        };
        let mut inner = self.lock();
        inner.doubt.hear(heard);
        if let Some(unheard) = unheard {
            inner.unheard = Some((unheard, inner.doubt.generation()));
        }
    }

    /// Notes that the device uses its number on the server, or that this is closed.
    pub(super) fn end_doubt(&self) {
        self.lock().doubt.end();
    }

    /// Has a work item settle what a user who is killed does not wait for.
    pub(crate) fn settle_later(self: &Arc<Self>) {
        if !self.is_settled() {
            // It may be queued already.
            let _ = self
                .session()
                .client()
                .doubts()
                .enqueue::<_, ITEM>(self.clone());
        }
    }

    /// Closes what the server may have opened without that the device uses it. Sleeps until the
    /// message has ended.
    fn settle(self: &Arc<Self>) {
        let mut known = None;
        loop {
            let question = match self.try_to_settle(known.take()) {
                Tried::Settled => return,
                Tried::Again(question) => question,
            };
            if let Some(question) = question {
                // One question at a time: each takes an id until it ends.
                while question.end(END_MS).is_none() {}
                known = self.agree_patiently();
            }
            if self.session().is_gone_within_ms(AGAIN_MS) {
                return;
            }
        }
    }

    /// Tries once to close what the server may have opened. `known` is what the server has said of
    /// itself, if it was asked before.
    fn try_to_settle(self: &Arc<Self>, known: Option<Known>) -> Tried {
        if self.is_settled() {
            return Tried::Settled;
        }
        let mut refused = None;
        let guard = loop {
            // Not with the admin lock.
            while let Some((unheard, generation)) = self.unheard() {
                let Some(is_refused) = unheard.end(END_MS) else {
                    return Tried::Again(None);
                };
                refused = is_refused.then_some(generation);
                self.forget_unheard(generation);
            }
            let Ok(guard) = self.session().lock_admin_to_settle() else {
                return Tried::Again(None);
            };
            // While this thread waited for it, another writer may have been killed.
            if self.lock().unheard.is_none() {
                break guard;
            }
        };
        if let Some(generation) = refused {
            self.lock().doubt.refuse(generation);
        }
        // A device may have been unmapped meanwhile, the last one of the session.
        if self.is_settled() {
            return Tried::Settled;
        }
        let namesake = self.session().namesake(self);
        let (doubt, state) = {
            let inner = self.lock();
            (inner.doubt, inner.state)
        };
        match doubt.settle(state, namesake.as_ref().map(|other| other.io_state())) {
            Settle::Nothing => {}
            Settle::HandOver => {
                if let Some(other) = namesake {
                    other.lock().doubt.hear(Heard::Nothing);
                    // It is in no hurry if it is being opened; one that is fenced settles it now.
                    other.settle_later();
                }
            }
            Settle::Ask => return self.ask_and_close(&guard, known),
        }
        Tried::Settled
    }

    fn is_settled(&self) -> bool {
        let doubt = self.lock().doubt;
        doubt.is_settled(self.session().is_closing())
    }

    fn unheard(&self) -> Option<(Unheard, u32)> {
        self.lock().unheard.clone()
    }

    /// Forgets the unheard OPEN of this number, which has ended.
    fn forget_unheard(&self, generation: u32) {
        let mut inner = self.lock();
        let ended = inner.unheard.take_if(|(_, of)| *of == generation);
        drop(inner);
        drop(ended);
    }

    /// Opens the device once more, and closes what it gets, unless requests are sent with that
    /// number.
    fn ask_and_close(self: &Arc<Self>, guard: &AdminLockGuard<'_>, known: Option<Known>) -> Tried {
        let server = match self.server(known) {
            Ok(server) => server,
            Err(failed) => return Tried::Again(failed.fate.unheard()),
        };
        if !server.is_extended {
            // One of the C driver, which is not asked once more, has come in its place.
            self.end_doubt();
            return Tried::Settled;
        }
        if let Some(asked) = self.question(guard, &*self.rtrs, &server) {
            asked.settle(guard);
            if asked.answer() == Answer::Refused {
                self.end_doubt();
            }
            // Not again and again: it is in use, and each path that connects asks for it.
            return Tried::Settled;
        }
        let number = match self.send_open(guard, &*self.rtrs, &server, Occasion::AfterOutage) {
            Ok(remote) => Some(remote.device_id),
            Err(not_opened) => {
                if not_opened.has_nothing_open() {
                    self.end_doubt();
                }
                not_opened.number
            }
        };
        if number.is_some_and(|number| self.session().close_number(guard, &*self.rtrs, number)) {
            self.end_doubt();
        }
        match self.lock().doubt.is_any() {
            true => Tried::Again(None),
            false => Tried::Settled,
        }
    }
}
