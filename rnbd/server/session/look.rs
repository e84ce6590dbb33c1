// SPDX-License-Identifier: GPL-2.0

//! The look for devices that are silent for longer than a client waits, and for those that are open
//! although no client knows of them: see [`told`](crate::proto::told).

use kernel::{
    impl_has_delayed_work,
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    sync::atomic::Ordering::Relaxed,
    workqueue::{
        self,
        DelayedItem,
        WorkQueue, //
    },
};

use super::{
    message_queue,
    Session, //
};
use crate::proto::answer_time::LOOK_MS;

/// The number of the work item among those of a session.
pub(super) const LOOK: u64 = 1;

impl_has_delayed_work! {
    impl HasDelayedWork<Self, LOOK> for Session { self.look }
}

impl DelayedItem<LOOK> for Session {
    fn wq(&self) -> &WorkQueue {
        self.server.messages()
    }
}

impl WorkItem<LOOK> for Session {
    type Pointer = Arc<Session>;

    fn run(session: Arc<Session>) {
        let is_silent = session.answer_due();
        if session.look_for_untold() || is_silent {
            session.look_later();
        }
    }
}

impl Session {
    /// Looks soon. The caller knows that the session has not ended, which waits for no later look.
    pub(in crate::server) fn look_later(self: &Arc<Self>) {
        // It may be pending for others.
        let _ = workqueue::queue_delayed::<_, LOOK>(self.clone(), LOOK_MS);
    }

    /// Notes that an OPEN has come.
    pub(in crate::server) fn note_asked(&self) {
        self.asked_ms.store(self.now_ms(), Relaxed);
    }

    /// Notes that no client knows of a device.
    pub(in crate::server) fn note_untold(&self, device_id: u32) {
        let now_ms = self.now_ms();
        self.with_number(device_id, |mapping| mapping.told.lost(now_ms));
    }

    /// Closes a device unless a client knows of it, or may ask for it yet. `name` is that of the
    /// caller's queue, in which an OPEN of the device would wait.
    pub(in crate::server) fn close_untold(&self, device_id: u32, name: &[u8]) {
        let (now_ms, asked_ms) = self.times_ms();
        self.close_if(device_id, false, |mapping| {
            mapping.path() == name && mapping.told.is_over(now_ms, asked_ms)
        });
    }

    /// Returns the time of now, and of the last OPEN, in milliseconds.
    fn times_ms(&self) -> (u64, u64) {
        (self.now_ms(), self.asked_ms.load(Relaxed))
    }

    /// Has the devices closed that were kept for long enough; returns whether any are kept.
    fn look_for_untold(self: &Arc<Self>) -> bool {
        let (now_ms, asked_ms) = self.times_ms();
        let (mut device_id, mut is_any) = (0, false);
        while (device_id as usize) < self.slots.lock().len() {
            let name = self.with_number(device_id, |mapping| {
                is_any |= mapping.told.is_no();
                match mapping.told.is_over(now_ms, asked_ms) {
                    true => message_queue::copy(mapping.path()),
                    false => None,
                }
            });
            if let Some(name) = name.flatten() {
                message_queue::close_untold(self, device_id, name);
            }
            device_id = device_id.wrapping_add(1);
        }
        is_any
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(0)
    }
}
