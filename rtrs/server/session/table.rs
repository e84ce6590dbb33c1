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
use rdma::cm::ConnectRequest;
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
        Service,
        Session, //
    },
};

/// The sessions of one listener, and their shared state.
///
/// Lock order: `sessions`, then [`Session::paths`]. No thread that holds one of them waits for a
/// completion handler, an event of the connection manager or a file of sysfs.
#[pin_data]
pub(crate) struct Registry {
    pub(crate) shared: Arc<ModuleState>,
    pub(crate) service: Arc<dyn Service>,
    #[pin]
    sessions: Mutex<Sessions>,
    /// Woken when a session has been removed.
    #[pin]
    gone: WaitQueue,
}

struct Sessions {
    list: KVec<Arc<Session>>,
    /// No new sessions are created.
    closed: bool,
}

impl Registry {
    /// Creates an empty table.
    pub(crate) fn new(shared: Arc<ModuleState>, service: Arc<dyn Service>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                shared,
                service,
                sessions <- new_mutex!(Sessions {
                    list: KVec::new(),
                    closed: false,
                }, "Registry::sessions"),
                gone <- new_wait_queue!("Registry::gone"),
            }),
            GFP_KERNEL,
        )
    }

    /// Finds the path of a connect request, or creates it, and its session if necessary.
    pub(crate) fn path_for(
        self: &Arc<Self>,
        connect: &Connect,
        request: &ConnectRequest<'_>,
    ) -> Result<Arc<Path>, Refusal> {
        device::capabilities(request.device())
            .check()
            .map_err(Refusal::Device)?;
        let mut sessions = self.sessions.lock();
        if sessions.closed {
            return Err(Refusal::UnknownSession);
        }
        let known = sessions.list.iter().find(|s| s.is(&connect.paths_uuid));
        if let Some(session) = known {
            let session = session.clone();
            return self.path_of(&session, connect, request);
        }
        if !connect.first_conn {
            return Err(Refusal::UnknownSession);
        }
        connect.check_new_path()?;
        let charge = self.charge(budget::session_bytes(&self.shared.geometry))?;
        let session =
            Session::new(self, connect.paths_uuid, charge).map_err(|_| Refusal::NoMemory)?;
        sessions
            .list
            .reserve(1, GFP_KERNEL)
            .map_err(|_| Refusal::NoMemory)?;
        let path = self.path_of(&session, connect, request)?;
        sessions
            .list
            .push_within_capacity(session)
            .map_err(|_| Refusal::NoMemory)?;
        Ok(path)
    }

    /// The same for a known session.
    fn path_of(
        &self,
        session: &Arc<Session>,
        connect: &Connect,
        request: &ConnectRequest<'_>,
    ) -> Result<Arc<Path>, Refusal> {
        let name = match (request.peer_address(), request.local_address()) {
            (Some(peer), Some(local)) => PathName {
                src: address::from_cm(&peer.address),
                dst: address::from_cm(&local.address),
            },
            _ => return Err(Refusal::PathState),
        };
        let mut paths = session.paths.lock();
        let known = paths.iter().map(|p| p.known(&connect.sess_uuid, &name));
        if let Admission::Join(index) = admission::admit(connect, known)? {
            return paths.get(index).cloned().ok_or(Refusal::PathState);
        }
        let connection = connections::cost_bytes(session, request.device())
            .map_err(|e| Refusal::Device(e.into()))?;
        // There must be room for all connections now, and each is charged when it is made: who
        // announces many keeps no memory from others by that.
        let connections = connection.saturating_mul(connect.cid_num.into());
        let cost = budget::path_bytes(session.geometry())
            .saturating_add(Connections::bytes(connect.cid_num));
        drop(self.charge(cost.saturating_add(connections))?);
        let charge = self.charge(cost)?;
        paths
            .reserve(1, GFP_KERNEL)
            .map_err(|_| Refusal::NoMemory)?;
        let path = Path::new(session, connect, request, name, charge)?;
        // The paths that it replaces are closed before it is in the list.
        for rival in paths.iter().filter(|rival| rival.precedes(&path)) {
            rival.fail(PathError::Replaced);
        }
        paths
            .push_within_capacity(path.clone())
            .map_err(|_| Refusal::NoMemory)?;
        Ok(path)
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
    }
}
