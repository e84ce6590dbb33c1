// SPDX-License-Identifier: GPL-2.0

//! What all sessions share: class, work queue, and the list of them.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    sync::Global,
    sysfs::Class,
    workqueue::{
        Flags,
        WorkQueue, //
    },
};

use crate::session::Session;

static LIBRARY: Global<Option<Arc<Library>>> = Global::new(None);

/// The module's state. The work queue outlives all paths: [`Library::stop`] waits for what is left
/// of them.
#[pin_data]
pub(crate) struct Library {
    pub(crate) class: Class,
    /// Heartbeats and teardowns; a teardown waits for heartbeats only.
    pub(crate) queue: WorkQueue,
    #[pin]
    sessions: Mutex<KVec<Arc<Session>>>,
}

impl Library {
    /// Makes the module's state.
    pub(crate) fn start() -> Result<Arc<Self>> {
        let class = Class::register(c"rtrs-client")?;
        let queue = WorkQueue::new(c"rtrs_client_wq", Flags::UNBOUND | Flags::MEM_RECLAIM, 0)?;
        let library = Arc::pin_init(
            pin_init!(Self {
                class,
                queue,
                sessions <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )?;
        *LIBRARY.lock() = Some(library.clone());
        Ok(library)
    }

    /// Takes the module's state away, at the module's exit. No session is left: those who open them
    /// use this module.
    pub(crate) fn stop(&self) {
        drop(LIBRARY.lock().take());
        // A last reference must not be dropped by an item on the queue.
        self.queue.flush();
    }

    pub(crate) fn get() -> Result<Arc<Self>> {
        LIBRARY.lock().clone().ok_or(ENODEV)
    }

    /// Enters a session; `EEXIST` if its name is taken.
    pub(crate) fn enter(&self, session: &Arc<Session>) -> Result {
        let mut sessions = self.sessions.lock();
        if sessions.iter().any(|s| s.name() == session.name()) {
            return Err(EEXIST);
        }
        sessions.push(session.clone(), GFP_KERNEL)?;
        Ok(())
    }

    /// Takes a session off the list.
    pub(crate) fn leave(&self, session: &Session) {
        let mut sessions = self.sessions.lock();
        let index = sessions.iter().position(|s| core::ptr::eq(&**s, session));
        let left = index.map(|i| sessions.remove(i));
        drop(sessions);
        drop(left);
    }

    /// Finds a session by its name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions
            .iter()
            .find(|s| s.name().to_bytes() == name.as_bytes())
            .cloned()
    }
}
