// SPDX-License-Identifier: GPL-2.0

//! The client: maps devices of servers as local disks.
//!
//! ```text
//! Client ── Session (one an RTRS session: its connection, its tags)
//!    │         └── Device (one a mapped device: state, number on the server)
//!    │               └── Disk rnbdN ── requests ── `queue` ── RTRS
//!    └── /sys/class/rnbd-client/ctl/map_device ── `map`
//! ```
//!
//! A session exists as long as it has users: its devices, and the threads that map one.

mod admin;
mod cache;
mod device;
mod disk;
mod io_state;
mod limits;
mod map;
mod mapped_disk;
mod protection;
mod queue;
mod retry;
mod session;
mod sysfs;
mod trace;

use block_ext::major::Major;
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    ida::{
        Ida,
        IdaId, //
    },
    sync::atomic::{
        AtomicBool,
        Ordering, //
    },
    sysfs::Directory,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

use self::session::Session;
use crate::proto::{
    map::MapRequest,
    MINORS, //
};

pub(crate) use self::sysfs::Control;

/// Number of disks that have minor numbers: there are 2^20, of which a disk takes `MINORS`.
const DISKS_MAX: u32 = (1 << 20) / MINORS;

/// The state that all sessions share.
///
/// Lock order: `sessions`, then `Session::usage` or `Session::devices`, then `Device::inner`.
#[pin_data]
pub(crate) struct Client {
    /// Major number of all disks.
    major: Major,
    /// Numbers of the disks.
    numbers: Ida,
    /// Closes sessions without users, changes the limits of disks, reads their partition tables.
    wq: WorkQueue,
    /// Settles what devices have in doubt. Each of these items waits for a server, or until its
    /// session is closed, and no item of `wq` waits for one of them.
    doubts: WorkQueue,
    /// The sessions that are being connected, are connected or are being closed.
    #[pin]
    sessions: Mutex<KVec<Arc<Session>>>,
    /// The module is being unloaded, so that no session is used any more; changed under `sessions`.
    is_ending: AtomicBool,
    /// The folder `ctl/devices`; `None` while the module is being loaded or unloaded.
    #[pin]
    devices: Mutex<Option<Arc<Directory<()>>>>,
}

impl Client {
    /// Creates a client without sessions.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let major = Major::register(c"rnbd")?;
        let numbers = Ida::new()?;
        let wq = WorkQueue::new(c"rnbd_client_wq", Flags::UNBOUND, 0)?;
        let doubts = WorkQueue::new(c"rnbd_client_doubts", Flags::UNBOUND, 0)?;
        Arc::pin_init(
            pin_init!(Self {
                major,
                numbers,
                wq,
                doubts,
                sessions <- new_mutex!(KVec::new()),
                is_ending: AtomicBool::new(false),
                devices <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
    }

    fn major(&self) -> &Major {
        &self.major
    }

    /// Returns the work queue for slow work that no caller waits for.
    fn wq(&self) -> &WorkQueue {
        &self.wq
    }

    /// Returns the work queue of what waits for servers.
    fn doubts(&self) -> &WorkQueue {
        &self.doubts
    }

    /// Returns the number of a new disk.
    fn number(&self) -> Result<IdaId> {
        self.numbers.alloc(0, DISKS_MAX - 1)
    }

    /// Waits until the sessions that were closed are freed, and no other work is pending.
    fn flush(&self) {
        self.wq.flush();
        // Their sessions are closed, so they end; what they drop may close a session.
        self.doubts.flush();
        self.wq.flush();
    }

    fn devices(&self) -> Option<Arc<Directory<()>>> {
        self.devices.lock().clone()
    }

    fn set_devices(&self, devices: Option<Arc<Directory<()>>>) {
        let old = core::mem::replace(&mut *self.devices.lock(), devices);
        drop(old);
    }

    /// Returns whether the device that `request` names is mapped already.
    fn has_device(&self, request: &MapRequest<'_>) -> bool {
        let sessions = self.sessions.lock();
        let session = sessions
            .iter()
            .find(|s| s.name().to_bytes() == request.sess_name);
        session.is_some_and(|session| session.has_device(request.device_path))
    }

    /// Closes the connections of all sessions for the end of the module, so that the threads which
    /// map devices over them do not wait for a server. No other thread begins to.
    fn disconnect_all(&self) {
        let sessions = self.sessions.lock();
        self.is_ending.store(true, Ordering::Relaxed);
        // From the last to the first: sessions that are closed leave the list meanwhile, and only
        // those behind one that leaves get another index.
        let mut left = sessions.len();
        drop(sessions);
        while let Some(index) = left.checked_sub(1) {
            left = index;
            let session = self.sessions.lock().get(index).cloned();
            if let Some(session) = session {
                session.disconnect();
            }
        }
    }

    /// Returns any session.
    fn first_session(&self) -> Option<Arc<Session>> {
        self.sessions.lock().first().cloned()
    }

    /// Removes a closed session from the list.
    fn forget(&self, session: &Arc<Session>) -> Option<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        let index = sessions
            .iter()
            .position(|other| Arc::ptr_eq(other, session))?;
        sessions.remove(index).ok()
    }
}
