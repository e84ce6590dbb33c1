// SPDX-License-Identifier: GPL-2.0

//! The number of message queues that all sessions have together.

use kernel::sync::Arc;
use kernel_ext::sync::atomic::Ordering::Relaxed;

use crate::{
    proto::message_queue,
    server::session::Session, //
};

/// One of the queues that all sessions share; returned when this is dropped.
pub(super) struct InUse(Arc<Session>);

impl InUse {
    /// Takes one for a session, if one is free for a message that may be refused, or may not.
    pub(super) fn take(session: &Arc<Session>, may_refuse: bool) -> Option<Self> {
        let before = session.server().queues_in_use().fetch_add(1, Relaxed);
        let taken = Self(session.clone());
        message_queue::is_free(before, may_refuse).then_some(taken)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.server().queues_in_use().fetch_sub(1, Relaxed);
    }
}
