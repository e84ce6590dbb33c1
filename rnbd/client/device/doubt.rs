// SPDX-License-Identifier: GPL-2.0

//! Closes what the server may have opened without that the device uses it: see
//! [`doubt`](crate::proto::doubt).
//!
//! That waits for the end of a message, which a user who is killed does not. So it is done by work
//! items: that of `unmap_device`, and one for a device that stays mapped.

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
            END_MS, //
        },
        occasion::Occasion, //
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
    pub(super) fn settle(self: &Arc<Self>) {
        if !self.lock().doubt.is_any() {
            return;
        }
        let mut refused = None;
        let guard = loop {
            // Not with the admin lock.
            while let Some((unheard, generation)) = self.take_unheard() {
                refused = unheard.is_refused(END_MS).then_some(generation);
            }
            let Ok(guard) = self.session().lock_admin_to_settle() else {
                return;
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
                }
            }
            Settle::Ask => self.ask_and_close(&guard),
        }
    }

    fn take_unheard(&self) -> Option<(Unheard, u32)> {
        self.lock().unheard.take()
    }

    /// Opens the device once more, and closes what it gets, unless requests are sent with that
    /// number.
    fn ask_and_close(self: &Arc<Self>, guard: &AdminLockGuard<'_>) {
        let Ok(server) = admin::agree(&*self.rtrs) else {
            return;
        };
        if let Some(asked) = self.question(guard, &*self.rtrs, &server) {
            return asked.settle(guard);
        }
        if let Ok(number) = self.ask(guard, &*self.rtrs, &server, Occasion::AfterOutage) {
            if self.session().close_number(guard, &*self.rtrs, number) {
                self.end_doubt();
            }
        }
    }
}
