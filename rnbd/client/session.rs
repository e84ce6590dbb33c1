// SPDX-License-Identifier: GPL-2.0

//! Sessions: the connection to a server, its tags, and the devices that are mapped over it.
//!
//! The first device that is mapped over a session creates it, and the session is closed when the
//! last one is unmapped. Its name is in use until it is closed: a thread that maps over a session
//! that is being connected or closed waits for the outcome.

mod admin_lock;
mod buffers;
mod devices;
mod watcher;

use block_ext::mq::{
    TagSet,
    TagSetConfig, //
};
use kernel::{
    impl_has_work,
    prelude::*,
    str::{
        BStr,
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex,
        SetOnce, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    errno,
    sync::{
        atomic::Ordering,
        Completion, //
    },
    text, //
};
use rtrs_client::OpenParam;
use rtrs_core::proto::settings::Settings;

use self::{
    admin_lock::AdminLock,
    watcher::SessionWatcher, //
};
pub(super) use self::{
    admin_lock::AdminLockGuard, //
    buffers::TupleBuffers,
};
use super::{
    admin,
    device::Device,
    limits,
    queue::Queue,
    Client, //
};
use crate::proto::map::MapRequest;

/// Most requests of a tag set (`BLK_MQ_MAX_DEPTH`).
const DEPTH_MAX: u32 = 10240;

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first user connects it.
    Connecting,
    /// Devices can be mapped over it.
    Ready,
    /// Connecting has failed, or the last user is gone: it is being closed.
    Closing,
}

/// The connection of a session, set when it is ready.
struct Connection {
    rtrs: Arc<rtrs_client::Session>,
    tags: Arc<TagSet<Queue>>,
}

/// The phase and the number of users of a session.
struct Usage {
    phase: Phase,
    users: usize,
}

/// A session.
///
/// Locking: `usage` is taken under the client's list of sessions.
#[pin_data]
pub(super) struct Session {
    name: CString,
    client: Arc<Client>,
    poll_queues: u32,
    /// Set before it waits for a server.
    opening: SetOnce<Arc<rtrs_client::Session>>,
    connection: SetOnce<Connection>,
    watcher: Arc<SessionWatcher>,
    #[pin]
    usage: Mutex<Usage>,
    /// Completes when connecting has succeeded or failed.
    #[pin]
    settled: Completion,
    /// Completes when the name is free again.
    #[pin]
    gone: Completion,
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
    #[pin]
    admin_lock: AdminLock,
    #[pin]
    tuple_buffers: Mutex<Option<Arc<TupleBuffers>>>,
    #[pin]
    closing: Work<Session>,
}

/// A user of a session. When the last one is dropped the session is closed.
pub(super) struct User(Arc<Session>);

impl User {
    /// Returns the session.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl_has_work! {
    impl HasWork<Self> for Session { self.closing }
}

impl WorkItem for Session {
    type Pointer = Arc<Session>;

    fn run(this: Arc<Session>) {
        this.close();
    }
}

/// The result of a search for a session.
enum Found {
    /// A session that is ready, or that the caller has to connect (`true`).
    Session(User, bool),
    /// A session that is being connected or closed; search again when it has settled or is gone.
    Wait(Arc<Session>, Phase),
}

impl Session {
    fn new(client: &Arc<Client>, request: &MapRequest<'_>) -> Result<Arc<Self>> {
        let name = text::c_string(request.sess_name)?;
        let client = client.clone();
        let poll_queues = request.nr_poll_queues;
        let watcher = Arc::pin_init(SessionWatcher::new(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                client,
                poll_queues,
                opening: SetOnce::new(),
                connection: SetOnce::new(),
                watcher,
                usage <- new_mutex!(Usage {
                    phase: Phase::Connecting,
                    users: 1,
                }),
                settled <- Completion::new(),
                gone <- Completion::new(),
                devices <- new_mutex!(KVec::new()),
                admin_lock <- AdminLock::new(),
                tuple_buffers <- new_mutex!(None),
                closing <- new_work!("Session::closing"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the session that `request` names; creates and connects it if there is none.
    ///
    /// # Errors
    ///
    /// `ENXIO` if there is none and `request` has no path, `EINVAL` if it asks for queues that the
    /// session does not have or does not ask for poll queues that it has, `ERESTARTSYS` if the
    /// caller is killed, `ENODEV` if the module is being unloaded; else the error of connecting.
    pub(super) fn get(client: &Arc<Client>, request: &MapRequest<'_>) -> Result<User> {
        loop {
            let (user, is_new) = match Self::find_or_make(client, request)? {
                Found::Session(user, is_new) => (user, is_new),
                Found::Wait(session, Phase::Connecting) => {
                    session.settled.wait_killable()?;
                    continue;
                }
                Found::Wait(session, _) => {
                    session.gone.wait_killable()?;
                    continue;
                }
            };
            if is_new {
                user.0.connect(request)?;
            } else {
                user.0.check_queues(request)?;
                user.0.check_settings(request)?;
            }
            return Ok(user);
        }
    }

    fn find_or_make(client: &Arc<Client>, request: &MapRequest<'_>) -> Result<Found> {
        let mut sessions = client.sessions.lock();
        if client.is_ending.load(Ordering::Relaxed) {
            return Err(ENODEV);
        }
        let known = sessions
            .iter()
            .find(|s| s.name.to_bytes() == request.sess_name);
        if let Some(session) = known {
            let mut usage = session.usage.lock();
            if usage.phase == Phase::Ready {
                usage.users = usage.users.saturating_add(1);
                return Ok(Found::Session(User(session.clone()), false));
            }
            return Ok(Found::Wait(session.clone(), usage.phase));
        }
        if request.path_count == 0 {
            pr_err!(
                "map_device: there is no session '{}', and no path= to make it\n",
                BStr::from_bytes(request.sess_name)
            );
            return Err(ENXIO);
        }
        let session = Self::new(client, request)?;
        sessions.push(session.clone(), GFP_KERNEL)?;
        Ok(Found::Session(User(session), true))
    }

    /// Fails if the new device asks for another number of IO queues than the session has, or if
    /// either has poll queues: the device would need those of the session, which has as many as its
    /// first device has asked for.
    fn check_queues(&self, request: &MapRequest<'_>) -> Result {
        let io_queues = self.rtrs()?.io_queues();
        if let Some(asked) = request.nr_io_queues.filter(|asked| *asked != io_queues) {
            pr_err!(
                "map_device: session {} exists with {io_queues} IO queues: \
                 leave nr_io_queues={asked} out\n",
                &*self.name
            );
            return Err(EINVAL);
        }
        if request.nr_poll_queues == 0 && self.poll_queues == 0 {
            return Ok(());
        }
        pr_err!(
            "map_device: session {} exists with {} poll queues: another device cannot use it with {}\n",
            &*self.name,
            self.poll_queues,
            request.nr_poll_queues
        );
        Err(EINVAL)
    }

    /// Fails if `request` has settings: those of an existing session are changed by its files.
    fn check_settings(&self, request: &MapRequest<'_>) -> Result {
        if request.settings == Settings::default() && request.io_timeout_ms == 0 {
            return Ok(());
        }
        pr_err!(
            "map_device: session {} exists: change its settings in /sys/class/rtrs-client/{}\n",
            &*self.name,
            &*self.name
        );
        Err(EINVAL)
    }

    /// Connects the session and wakes the threads that wait for that. On failure the session is
    /// closed when its user is dropped.
    fn connect(self: &Arc<Self>, request: &MapRequest<'_>) -> Result {
        let connected = self.try_connect(request);
        if connected.is_ok() {
            self.usage.lock().phase = Phase::Ready;
        } else {
            self.usage.lock().phase = Phase::Closing;
        }
        self.settled.complete_all();
        connected
    }

    fn try_connect(self: &Arc<Self>, request: &MapRequest<'_>) -> Result {
        let mut paths = KVec::with_capacity(request.path_count, GFP_KERNEL)?;
        for path in request.paths() {
            paths.push(path, GFP_KERNEL)?;
        }
        let param = OpenParam {
            name: self.name.to_str().map_err(|_| EINVAL)?,
            paths: &paths,
            port: request.dest_port,
            io_queues: request.nr_io_queues,
            poll_queues: request.nr_poll_queues,
            settings: request.settings,
            events: self.watcher.clone(),
        };
        let opened = rtrs_client::Session::open(param, |rtrs| self.begin_open(rtrs));
        let rtrs = opened.inspect_err(|error| {
            pr_err!(
                "map_device: session {} is not connected: {error:?}\n",
                &*self.name
            );
        })?;
        let tags = make_tags(&rtrs, request.io_timeout_ms)
            .and_then(|tags| admin::agree(&*rtrs).map(|_| tags));
        match tags {
            Ok(tags) => {
                self.connection.populate(Connection { rtrs, tags });
                self.watcher.watch(self.clone());
                Ok(())
            }
            Err(error) => {
                pr_err!(
                    "map_device: session {} cannot be used: {error:?}\n",
                    &*self.name
                );
                rtrs.close();
                Err(error)
            }
        }
    }

    /// Lets [`Self::disconnect`] end the opening of `rtrs`, which may have been called already.
    fn begin_open(&self, rtrs: &Arc<rtrs_client::Session>) {
        self.opening.populate(rtrs.clone());
        // The lock: who sets it looks for what is opening afterwards.
        let sessions = self.client.sessions.lock();
        let is_ending = self.client.is_ending.load(Ordering::Relaxed);
        drop(sessions);
        if is_ending {
            rtrs.abort_open();
        }
    }

    /// Drops one use of the session. After the last one a work item closes the session: the caller
    /// may be an event handler that closing waits for.
    fn leave(self: &Arc<Self>) {
        let _sessions = self.client.sessions.lock();
        let mut usage = self.usage.lock();
        usage.users = usage.users.saturating_sub(1);
        if usage.users == 0 {
            usage.phase = Phase::Closing;
            // Queued once: the session is not used again.
            let _ = self.client.wq.enqueue(self.clone());
        }
    }

    /// Closes a session that has no users any more.
    fn close(self: &Arc<Self>) {
        self.watcher.stop();
        self.disconnect();
        let forgotten = self.client.forget(self);
        self.gone.complete_all();
        drop(forgotten);
    }

    /// Closes the connection, or ends the attempt to make it: requests in flight fail. May be
    /// called more than once.
    pub(super) fn disconnect(&self) {
        // First: a connection that is made meanwhile has no path then.
        if let Some(opening) = self.opening.as_ref() {
            opening.abort_open();
        }
        if let Some(connection) = self.connection.as_ref() {
            connection.rtrs.close();
        }
    }

    /// Returns whether the session has no users any more, and is being closed.
    pub(super) fn is_closing(&self) -> bool {
        self.usage.lock().phase == Phase::Closing
    }

    /// Returns whether the session is closed after so many milliseconds, or before. Sleeps.
    pub(super) fn is_gone_within_ms(&self, timeout_ms: u32) -> bool {
        self.gone.wait_timeout_ms(timeout_ms).is_ok()
    }

    /// Waits at most 100 ms for the session to be closed and removed from the list.
    pub(super) fn await_end(&self) {
        let _ = self.gone.wait_timeout_ms(100);
    }

    /// Returns the session's name.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }

    /// Returns the number of poll queues of the session.
    pub(super) fn poll_queues(&self) -> u32 {
        self.poll_queues
    }

    /// Returns the state that all sessions share.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the connection to the server; `ENOTCONN` while the session is being created.
    pub(super) fn rtrs(&self) -> Result<&Arc<rtrs_client::Session>> {
        let connection = self.connection.as_ref().ok_or(errno::ENOTCONN)?;
        Ok(&connection.rtrs)
    }

    /// Returns the tag set of the session's disks; `ENOTCONN` while the session is being created.
    pub(super) fn tags(&self) -> Result<&Arc<TagSet<Queue>>> {
        let connection = self.connection.as_ref().ok_or(errno::ENOTCONN)?;
        Ok(&connection.tags)
    }

    /// Returns whether a device of that name is mapped over the session.
    pub(super) fn has_device(&self, path: &[u8]) -> bool {
        self.devices
            .lock()
            .iter()
            .any(|device| device.path().to_bytes() == path)
    }
}

/// Allocates the tag set of a session: one request for each chunk that the server grants.
fn make_tags(rtrs: &Arc<rtrs_client::Session>, timeout_ms: u32) -> Result<Arc<TagSet<Queue>>> {
    // One more for the tuples of protection information.
    let entries = limits::of_transfers(rtrs).segments_needed().wrapping_add(1);
    let config = TagSetConfig {
        hw_queues: rtrs.io_queues(),
        poll_queues: rtrs.poll_queues(),
        depth: u32::from(rtrs.io_depth()).min(DEPTH_MAX),
        sg_entries: u16::try_from(entries)?,
        timeout_ms,
    };
    TagSet::new(config, ())
}
