// SPDX-License-Identifier: GPL-2.0

//! The sessions of one listener.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    new_wait_queue,
    sync::WaitQueue, //
};
use rdma::{
    cm::ConnectRequest,
    Device,
    DeviceId,
    PortEvents, //
};
use rtrs_core::{
    address, device,
    proto::{
        addr::PathName,
        admission::{
            self,
            Admission,
            NameClaim, //
        },
        budget,
        geometry::Geometry,
        handshake::{
            Connect,
            Refusal, //
        },
    },
};

use crate::server::{
    module::ModuleState, //
    path::{
        connections::{
            self,
            Connections, //
        },
        error::PathError,
        heartbeat,
        Path, //
    },
    quota::Charge,
    session::{
        connect_backlog::ConnectBacklog,
        Service,
        Session, //
    },
};

/// The origin of a connect request.
pub(crate) struct Origin {
    /// The device at which it came.
    pub(crate) device: Device,
    /// The two addresses, the client's first.
    pub(crate) name: PathName,
}

impl Origin {
    fn new(request: &ConnectRequest<'_>) -> Result<Self, Refusal> {
        let device = request.device().clone();
        device::capabilities(&device)
            .check()
            .map_err(Refusal::Device)?;
        let name = match (request.peer_address(), request.local_address()) {
            (Some(peer), Some(local)) => PathName {
                src: address::from_cm(&peer.address),
                dst: address::from_cm(&local.address),
            },
            _ => return Err(Refusal::PathState),
        };
        Ok(Self { device, name })
    }
}

/// The sessions of one listener, and their shared state.
///
/// Lock order: `sessions`, then [`Session::paths`]. No thread that holds one of them waits for a
/// completion handler, an event of the connection manager or a file of sysfs.
#[pin_data]
pub(crate) struct Registry {
    pub(crate) shared: Arc<ModuleState>,
    pub(crate) service: Arc<dyn Service>,
    /// Number and size of the chunks of each session.
    pub(crate) geometry: Geometry,
    #[pin]
    sessions: Mutex<Sessions>,
    /// Connect requests that wait for an answer; no other lock is taken with it.
    #[pin]
    pub(super) backlog: Mutex<ConnectBacklog>,
    /// Woken when a session has been removed.
    #[pin]
    gone: WaitQueue,
}

struct Sessions {
    list: KVec<Arc<Session>>,
    /// No new sessions are created.
    closed: bool,
}

impl Sessions {
    /// Returns the session with the client's identifier.
    fn of(&self, uuid: &[u8; 16]) -> Option<&Arc<Session>> {
        self.list.iter().find(|session| session.is(uuid))
    }
}

/// Returns the path of a session that a connect request belongs to; `None` if it begins a new one.
fn joins(
    paths: &[Arc<Path>],
    connect: &Connect,
    name: &PathName,
) -> Result<Option<Arc<Path>>, Refusal> {
    let known = paths
        .iter()
        .map(|path| path.known(&connect.sess_uuid, name));
    match admission::admit(connect, known)? {
        Admission::Join(index) => {
            let path = paths.get(index).cloned();
            path.map(Some).ok_or(Refusal::PathState)
        }
        Admission::Begin => Ok(None),
    }
}

impl Registry {
    /// Creates an empty table.
    pub(crate) fn new(
        shared: Arc<ModuleState>,
        service: Arc<dyn Service>,
        geometry: Geometry,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                shared,
                service,
                geometry,
                sessions <- new_mutex!(Sessions {
                    list: KVec::new(),
                    closed: false,
                }, "Registry::sessions"),
                backlog <- new_mutex!(ConnectBacklog::new(), "Registry::backlog"),
                gone <- new_wait_queue!("Registry::gone"),
            }),
            GFP_KERNEL,
        )
    }

    /// Finds the path that a connect request joins; if it begins one, returns where it comes from.
    pub(crate) fn known_path(
        &self,
        connect: &Connect,
        request: &ConnectRequest<'_>,
    ) -> Result<Result<Arc<Path>, Origin>, Refusal> {
        let origin = Origin::new(request)?;
        let session = self.find(connect)?;
        let joined = match &session {
            Some(session) => joins(&session.paths.lock(), connect, &origin.name)?,
            None => connect.check_new_path().map(|()| None)?,
        };
        Ok(joined.ok_or(origin))
    }

    /// Finds the path of a connect request, or creates it, and its session if necessary.
    ///
    /// What takes long, allocating and registering, is done without the locks, so that no other
    /// client waits for it; what was decided before is decided again with them. Sleeps.
    pub(crate) fn path_for(
        self: &Arc<Self>,
        connect: &Connect,
        origin: &Origin,
    ) -> Result<Arc<Path>, Refusal> {
        for _ in 0..admission::ROUNDS {
            let known = self.find(connect)?;
            let was_known = known.is_some();
            match self.find_or_begin(connect, origin, known) {
                Ok(Some(path)) => return Ok(path),
                Ok(None) => {}
                Err(refusal) => {
                    let is_known = self.find(connect)?.is_some();
                    if !admission::is_decided_anew(&refusal, was_known, is_known) {
                        return Err(refusal);
                    }
                }
            }
        }
        Err(Refusal::PathState)
    }

    /// Makes a round of [`Self::path_for`], for the session `known`; `None` if the session was
    /// created, or has ended, meanwhile.
    fn find_or_begin(
        self: &Arc<Self>,
        connect: &Connect,
        origin: &Origin,
        known: Option<Arc<Session>>,
    ) -> Result<Option<Arc<Path>>, Refusal> {
        let is_known = known.is_some();
        let session = match known {
            Some(session) => session,
            None => {
                connect.check_new_path()?;
                let charge = self.charge(budget::session_bytes(&self.geometry))?;
                Session::new(self, connect.paths_uuid, charge).map_err(|_| Refusal::NoMemory)?
            }
        };
        let joined = joins(&session.paths.lock(), connect, &origin.name)?;
        if joined.is_some() {
            return Ok(joined);
        }
        let cost = self.charge_path(&session, connect, &origin.device)?;
        let begin = Path::prepare(&session, connect, &origin.device, origin.name, cost)?;
        self.insert(&session, is_known, connect, &origin.name, begin)
    }

    /// Finds the session of a connect request; `None` if the request creates it.
    fn find(&self, connect: &Connect) -> Result<Option<Arc<Session>>, Refusal> {
        let sessions = self.sessions.lock();
        let known = sessions.of(&connect.paths_uuid).cloned();
        if sessions.closed || (known.is_none() && !connect.first_conn) {
            return Err(Refusal::UnknownSession);
        }
        Ok(known)
    }

    /// Charges a path that is to be created, but for its connections.
    fn charge_path(
        &self,
        session: &Session,
        connect: &Connect,
        device: &Device,
    ) -> Result<Charge, Refusal> {
        let connection =
            connections::cost_bytes(session, device).map_err(|e| Refusal::Device(e.into()))?;
        // There must be room for all connections now, and each is charged when it is made: who
        // announces many keeps no memory from others by that.
        let connections = connection.saturating_mul(connect.cid_num.into());
        let cost = budget::path_bytes(session.geometry(), session.policy)
            .saturating_add(Connections::bytes(connect.cid_num));
        drop(self.charge(cost.saturating_add(connections))?);
        self.charge(cost)
    }

    /// Adds the path that `begin` makes, and its session unless it `is_known`. Returns `None`, and
    /// the caller frees what it has prepared, if the table has another session of the client by
    /// now, or this one no more; another path if that was created meanwhile by the same request.
    fn insert(
        &self,
        session: &Arc<Session>,
        is_known: bool,
        connect: &Connect,
        name: &PathName,
        begin: impl FnOnce() -> Result<Arc<Path>, Refusal>,
    ) -> Result<Option<Arc<Path>>, Refusal> {
        let mut sessions = self.sessions.lock();
        if sessions.closed {
            return Err(Refusal::UnknownSession);
        }
        let found = sessions.of(&connect.paths_uuid);
        let found = found.map(|found| Arc::ptr_eq(found, session));
        if !admission::is_unchanged(is_known, found) {
            return Ok(None);
        }
        // Room for both, before anything is changed.
        sessions
            .list
            .reserve(1, GFP_KERNEL)
            .map_err(|_| Refusal::NoMemory)?;
        let mut paths = session.paths.lock();
        let joined = joins(&paths, connect, name)?;
        if joined.is_some() {
            return Ok(joined);
        }
        paths
            .reserve(1, GFP_KERNEL)
            .map_err(|_| Refusal::NoMemory)?;
        let path = begin()?;
        // The paths that it replaces are closed before it is in the list.
        for rival in paths.iter().filter(|rival| rival.precedes(&path)) {
            rival.fail(PathError::Replaced);
        }
        paths
            .push_within_capacity(path.clone())
            .map_err(|_| Refusal::NoMemory)?;
        if !is_known {
            sessions
                .list
                .push_within_capacity(session.clone())
                .map_err(|_| Refusal::NoMemory)?;
        }
        Ok(Some(path))
    }

    fn charge(&self, bytes: u64) -> Result<Charge, Refusal> {
        Charge::new(&self.shared, bytes).map_err(|_| Refusal::MemoryLimit)
    }

    /// Gives the session of `path` the name that its client asks for. No two sessions have the
    /// same: if another one has it, returns what the client is told.
    ///
    /// # Errors
    ///
    /// `EPERM` if this session has another name, else those of the allocator.
    pub(crate) fn claim_name(&self, path: &Arc<Path>, name: &[u8]) -> Result<Option<NameClaim>> {
        let name = CString::try_from_fmt(fmt!("{}", kernel::str::BStr::from_bytes(name)))?;
        let waited_ms = path.idle_ms();
        let sessions = self.sessions.lock();
        let holder = sessions
            .list
            .iter()
            .find(|other| !Arc::ptr_eq(other, &path.session) && *other.name() == *name);
        let Some(holder) = holder else {
            return match path.session.set_name(name) {
                true => Ok(None),
                false => Err(EPERM),
            };
        };
        let paths = holder.paths.lock();
        if path.info.begin_claim() {
            paths.iter().for_each(heartbeat::ask);
            return Ok(Some(NameClaim::Wait));
        }
        let claim = admission::claim_name(paths.iter().map(|p| p.holder()), waited_ms);
        Ok(Some(claim))
    }

    /// Removes a path from its session, and a session without paths from the table. The last step
    /// of a teardown.
    pub(crate) fn remove(&self, path: &Arc<Path>) {
        let mut sessions = self.sessions.lock();
        let mut paths = path.session.paths.lock();
        paths.retain(|p| !Arc::ptr_eq(p, path));
        for later in paths.iter() {
            later.set_up_again();
        }
        if paths.is_empty() {
            sessions.list.retain(|s| !Arc::ptr_eq(s, &path.session));
        }
        drop(paths);
        drop(sessions);
        self.gone.wake_all();
    }

    /// Closes all sessions for good, and waits until they are removed. The listener accepts no new
    /// ones any more. Sleeps.
    pub(crate) fn close(&self) {
        let mut sessions = self.sessions.lock();
        sessions.closed = true;
        for session in sessions.list.iter() {
            session.close();
        }
        drop(sessions);
        while !self.sessions.lock().list.is_empty() {
            // The lock sleeps, so a condition cannot take it.
            let _ = self.gone.wait_until_timeout_ms(|| false, 10);
        }
        // The work item that removed the last path may not have returned yet.
        self.shared.queue.flush();
        self.shared.ticks.flush();
    }
}

/// A device that fails ends its paths at once; a client that has another path need not wait until
/// the heartbeat finds that.
impl PortEvents for Registry {
    fn device_failed(&self, device: DeviceId) {
        for session in &self.sessions.lock().list {
            for path in session.paths.lock().iter() {
                if path.device.id() == device {
                    path.fail(PathError::DeviceFailed);
                }
            }
        }
    }
}
