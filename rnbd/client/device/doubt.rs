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

use super::Device;
use crate::{
    client::{
        admin::{
            self,
            NotOpened, //
        },
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
            Ok(_) => (Heard::Number, None),
            Err(not_opened) => match (&not_opened.fate, not_opened.number) {
                (_, Some(_)) => (Heard::Number, None),
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
        if self.lock().doubt.is_any() {
            // It may be queued already.
            let _ = self
                .session()
                .client()
                .wq()
                .enqueue::<_, ITEM>(self.clone());
        }
    }

    /// Closes what the server may have opened without that the device uses it. Sleeps until the
    /// message has ended.
    fn settle(self: &Arc<Self>) {
        while !self.has_settled() && !self.session().is_gone_within_ms(AGAIN_MS) {}
    }

    /// Tries once to close what the server may have opened. Returns `false` if that is to be tried
    /// again.
    fn has_settled(self: &Arc<Self>) -> bool {
        if !self.lock().doubt.is_any() {
            return true;
        }
        let mut refused = None;
        let guard = loop {
            // Not with the admin lock.
            while let Some((unheard, generation)) = self.unheard() {
                let Some(is_refused) = unheard.end(END_MS) else {
                    return false;
                };
                refused = is_refused.then_some(generation);
                self.forget_unheard(generation);
            }
            let Ok(guard) = self.session().lock_admin_to_settle() else {
                return false;
            };
            // While this thread waited for it, another writer may have been killed.
            if self.lock().unheard.is_none() {
                break guard;
            }
        };
        if let Some(generation) = refused {
            self.lock().doubt.refuse(generation);
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
            Settle::Ask => return self.ask_and_close(&guard),
        }
        true
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
    /// number. Returns `false` if that is to be tried again.
    fn ask_and_close(self: &Arc<Self>, guard: &AdminLockGuard<'_>) -> bool {
        let Ok(server) = admin::agree_locked(&*self.rtrs) else {
            return false;
        };
        if !server.is_extended {
            // One of the C driver, which is not asked once more, has come in its place.
            self.end_doubt();
            return true;
        }
        if let Some(asked) = self.question(guard, &*self.rtrs, &server) {
            asked.settle(guard);
            if asked.answer() == Answer::Refused {
                self.end_doubt();
            }
            // Not again and again: it is in use, and each path that connects asks for it.
            return true;
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
        !self.lock().doubt.is_any()
    }
}
