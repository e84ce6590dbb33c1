// SPDX-License-Identifier: GPL-2.0

//! The queues that sessions have left behind.

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    new_wait_queue,
    sync::WaitQueue, //
};

use super::{
    copy,
    MessageQueue, //
};
use crate::{
    proto::message_queue,
    server::session::Session, //
};

/// The time after which a thread that waits for a queue looks again.
pub(super) const LOOK_MS: u32 = 20;

/// The queues of sessions that have ended, with messages that are not carried out yet.
///
/// A client whose session begins anew opens its device by another queue, and the old one may have
/// the device for a moment: who opens it waits for that.
#[pin_data]
pub(crate) struct LeftQueues {
    #[pin]
    list: Mutex<KVec<(Arc<MessageQueue>, KVec<u8>)>>,
    /// Woken when one is removed.
    #[pin]
    gone: WaitQueue,
}

impl LeftQueues {
    /// Creates an empty list.
    pub(in crate::server) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(KVec::new(), "rnbd_server::LeftQueues::list"),
            gone <- new_wait_queue!("rnbd_server::LeftQueues::gone"),
        })
    }

    pub(super) fn add(&self, queue: &Arc<MessageQueue>, name: &[u8]) -> Result {
        let name = copy(name).ok_or(ENOMEM)?;
        Ok(self.list.lock().push((queue.clone(), name), GFP_KERNEL)?)
    }

    pub(super) fn remove(&self, queue: &Arc<MessageQueue>) {
        self.list
            .lock()
            .retain(|(left, _)| !Arc::ptr_eq(left, queue));
        self.gone.wake_all();
    }

    fn has(&self, session: &Session, name: &[u8]) -> bool {
        self.list.lock().iter().any(|(queue, left)| {
            *queue.session.name() == *session.name()
                && !core::ptr::eq(&*queue.session, session)
                && message_queue::is_same(left, name)
        })
    }

    /// Waits until no earlier session of the client of `session` has messages about the device
    /// `name`. Sleeps, as long as the device does not answer.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if `session` has ended: it is one of those that later ones wait for.
    pub(in crate::server) fn wait(&self, session: &Session, name: &[u8]) -> Result {
        while self.has(session, name) {
            session.check_not_ended()?;
            // The lock sleeps, so a condition cannot take it.
            let _ = self.gone.wait_until_timeout_ms(|| false, LOOK_MS);
        }
        Ok(())
    }
}
