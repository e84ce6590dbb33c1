// SPDX-License-Identifier: GPL-2.0

//! The chunk ids of admin messages, which wait for one another. The id of an IO is its block tag.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    errno, new_wait_queue,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            Ordering, //
        },
        WaitQueue, //
    },
};
use rtrs_core::proto::permit::AnswerWaits;

use crate::client::session::{
    quarantine::Quarantine,
    Session, //
};

/// The admin ids of a session that are in use.
#[pin_data]
pub(crate) struct AdminIds {
    /// One bit an id; `proto::permit` has at most 8.
    taken: AtomicU32,
    /// Whether it was logged that no id is left for OPEN, and none was since.
    is_logged: AtomicBool,
    #[pin]
    freed: WaitQueue,
}

impl AdminIds {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken: AtomicU32::new(0),
            is_logged: AtomicBool::new(false),
            freed <- new_wait_queue!("AdminIds::freed"),
        })
    }

    /// Takes the lowest id below `count` that is free and not held.
    fn try_take(&self, count: u16, quarantine: &Quarantine) -> Option<u16> {
        (0..count.min(31)).find(|id| {
            let bit = 1u32.wrapping_shl((*id).into());
            if self.taken.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
                return false;
            }
            // An id is held before it is given back, so this check comes second.
            let is_taken = quarantine.take_admin_id(*id);
            if !is_taken {
                self.taken.fetch_and(!bit, Ordering::AcqRel);
            }
            is_taken
        })
    }

    /// Wakes the waiters: ids are not held any more, or the session is being closed.
    pub(crate) fn notify(&self) {
        self.freed.wake_all();
    }

    fn give_back(&self, id: u16) {
        let bit = 1u32.wrapping_shl(id.into());
        self.taken.fetch_and(!bit, Ordering::AcqRel);
        self.freed.wake_all();
    }
}

/// An admin id that is in use. It belongs to the message in flight, not to the task that waits for
/// the answer: after a timeout it stays in use until the answer comes or the path is lost.
pub(crate) struct AdminPermit {
    ids: Arc<AdminIds>,
    id: u16,
}

impl Session {
    /// Takes an id for a message whose answer `waits`; waits for it at most `timeout_ms`, sleeps,
    /// and can be killed.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `ERESTARTSYS`, or `ECONNABORTED` if the session is being closed: what holds the
    /// ids is not answered any more.
    pub(crate) fn take_admin_id(&self, waits: AnswerWaits, timeout_ms: u32) -> Result<AdminPermit> {
        let ids = &self.admin_ids;
        let count = self.partition().admin_ids_end(waits);
        let mut taken = None;
        let waited = ids.freed.wait_until_killable_timeout_ms(
            || {
                taken = ids.try_take(count, &self.quarantine);
                if taken.is_none() && self.quarantine.is_any_held() {
                    self.quarantine.refused(self.now_ms());
                }
                taken.is_some() || self.is_closing()
            },
            timeout_ms,
        );
        if waited.is_err() && self.quarantine.is_any_held() {
            self.quarantine.refused(self.now_ms());
        }
        if waits == AnswerWaits::ForDevice {
            self.note_id_for_device(waited, count);
        }
        waited?;
        // The condition has taken an id, or the session is being closed.
        let id = taken.ok_or(errno::ECONNABORTED)?;
        Ok(AdminPermit {
            ids: ids.clone(),
            id,
        })
    }
}

impl Session {
    /// Logs, once until there is an id again, that the server leaves none to open a device.
    fn note_id_for_device(&self, waited: Result, count: u16) {
        let is_logged = &self.admin_ids.is_logged;
        if waited != Err(ETIMEDOUT) {
            is_logged.store(false, Ordering::Relaxed);
        } else if !is_logged.swap(true, Ordering::Relaxed) {
            pr_err!(
                "session {}: no device can be opened, as the server has not answered for {count} \
                 others: look at its disks, or write 1 to reconnect of each path\n",
                self.name()
            );
        }
    }
}

impl AdminPermit {
    pub(crate) fn id(&self) -> u16 {
        self.id
    }
}

impl Drop for AdminPermit {
    fn drop(&mut self) {
        self.ids.give_back(self.id);
    }
}
