// SPDX-License-Identifier: GPL-2.0

//! The client: sessions with stores of servers, which programs use through `/dev/rioc`.
//!
//! ```text
//! Client ── Session (one an RTRS session: the store that it uses)
//!    │         └── Lanes (one a chunk: the memory of an operation)
//!    │               └── Flight ── RTRS
//!    ├── /sys/class/rioc-client/ctl ── connect, disconnect
//!    └── /dev/rioc ── Opened (one an open file) ── `call`
//! ```

mod call;
mod device;
mod lane;
mod session;
mod sysfs;

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    ratelimit::RateLimit,
    sync::{
        atomic::{
            AtomicBool,
            Ordering, //
        },
        Global,
    },
    sysfs::Directory,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

use self::session::{
    Session,
    User, //
};
use crate::{
    proto::connect::Line,
    shown::Shown, //
};

pub(crate) use self::{
    device::Opened,
    sysfs::Control, //
};

/// The rate limit of log lines about answers: programs may ask again and again.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);

/// The client while the module is loaded: an open file has no other way to it.
static CLIENT: Global<Option<Arc<Client>>> = Global::new(None);

/// The state that all sessions share.
#[pin_data]
pub(crate) struct Client {
    /// Ends leases of files that were closed.
    wq: WorkQueue,
    /// The sessions that are being connected, are connected, or are being disconnected.
    #[pin]
    sessions: Mutex<KVec<Arc<Session>>>,
    /// The module is being unloaded; changed under `sessions`.
    is_ending: AtomicBool,
    /// The folder `ctl/sessions`; `None` while the module is being loaded or unloaded.
    #[pin]
    folder: Mutex<Option<Arc<Directory<()>>>>,
}

impl Client {
    fn new() -> Result<Arc<Self>> {
        let wq = WorkQueue::new(c"rioc_client_wq", Flags::UNBOUND, 0)?;
        Arc::pin_init(
            pin_init!(Self {
                wq,
                sessions <- new_mutex!(KVec::new()),
                is_ending: AtomicBool::new(false),
                folder <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns that of the module.
    fn get() -> Result<Arc<Self>> {
        CLIENT.lock().clone().ok_or(ENODEV)
    }

    fn is_ending(&self) -> bool {
        // Under the lock: who sets it looks for what is opening afterwards.
        let _sessions = self.sessions.lock();
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Connects what a line names. Sleeps, and can be killed.
    fn connect(self: &Arc<Self>, line: &[u8]) -> Result {
        let line = Line::parse(line).map_err(|reason| {
            pr_err!("connect: {}\n", Shown(reason));
            Error::from(reason.errno())
        })?;
        let session = Session::new(self, &line)?;
        self.add(&session)?;
        let folder = self.folder.lock().clone();
        let connected = session.connect(&line, folder);
        if connected.is_err() {
            session.close();
            self.forget(&session);
        }
        connected
    }

    fn add(&self, session: &Arc<Session>) -> Result {
        let mut sessions = self.sessions.lock();
        if self.is_ending.load(Ordering::Relaxed) {
            return Err(ENODEV);
        }
        if sessions.iter().any(|other| other.name() == session.name()) {
            pr_err!(
                "connect: session {} exists: choose another sessname=, or disconnect it\n",
                session.name()
            );
            return Err(EEXIST);
        }
        sessions.push(session.clone(), GFP_KERNEL)?;
        Ok(())
    }

    /// Disconnects the session that a line names. Sleeps.
    fn disconnect(&self, line: &[u8]) -> Result {
        let name = Line::session(line).map_err(|reason| {
            pr_err!("disconnect: {}\n", Shown(reason));
            Error::from(reason.errno())
        })?;
        let sessions = self.sessions.lock();
        let session = sessions.iter().find(|s| s.name().to_bytes() == name);
        let session = session.ok_or(ENOENT)?.clone();
        let is_begun = session.begin_end();
        drop(sessions);
        is_begun?;
        session.close();
        self.forget(&session);
        Ok(())
    }

    /// Returns the session of this name for a program.
    fn user(&self, name: &[u8]) -> Result<User> {
        let sessions = self.sessions.lock();
        let session = sessions.iter().find(|s| s.name().to_bytes() == name);
        session.ok_or(ENOENT)?.user()
    }

    /// Disconnects all sessions for the end of the module; none is connected any more.
    fn disconnect_all(&self) {
        let sessions = self.sessions.lock();
        self.is_ending.store(true, Ordering::Relaxed);
        drop(sessions);
        loop {
            let first = self.sessions.lock().first().cloned();
            let Some(session) = first else {
                return;
            };
            session.close();
            self.forget(&session);
        }
    }

    fn forget(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        let index = sessions
            .iter()
            .position(|other| Arc::ptr_eq(other, session));
        let gone = index.and_then(|index| sessions.remove(index).ok());
        drop(sessions);
        drop(gone);
    }
}
