// SPDX-License-Identifier: GPL-2.0

//! Listens for clients, and answers their connect requests.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::ratelimit::RateLimit;
use rdma::{
    cm::{
        self,
        ConnectRequest,
        Id,
        ListenHandler,
        Pending,
        SocketAddress, //
    },
    PortWatch, //
};
use rtrs_core::proto::{
    geometry::Geometry,
    handshake::{
        Connect,
        Refusal, //
    },
    wire::ConnectResponse,
    LISTEN_BACKLOG, //
};
use zerocopy::IntoBytes;

use crate::server::{
    module::ModuleState, //
    path::{
        connections::Events,
        error::PathError,
        Path, //
    },
    session::{
        table::Registry,
        Service, //
    },
};

/// A server on one port.
///
/// Dropping it stops listening, closes all sessions, waits until all their requests have been
/// answered, and frees everything. The drop sleeps.
pub struct Listener {
    /// The identifiers that listen: over IP, and over the InfiniBand address family.
    ids: Option<(cm::Listener, cm::Listener)>,
    registry: Arc<Registry>,
    /// Ends the paths over devices that fail.
    _devices: PortWatch,
}

impl Listener {
    /// Listens on all addresses of all RDMA devices, including later ones: IPv6 and IPv4 on `port`
    /// of the TCP port space, and GIDs on the service id of that port.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the port is in use; others of `rdma_bind_addr` and `rdma_listen`.
    pub fn new(port: u16, service: Arc<dyn Service>) -> Result<Self> {
        let shared = ModuleState::get()?;
        let geometry = shared.geometry;
        Self::on(port, service, shared, geometry)
    }

    /// Listens as [`new`](Self::new) does, for sessions of at most `queue_depth` chunks each: a
    /// service whose requests need few takes less memory for each client.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the depth is 0; those of [`new`](Self::new).
    pub fn with_queue_depth(
        port: u16,
        queue_depth: u16,
        service: Arc<dyn Service>,
    ) -> Result<Self> {
        let shared = ModuleState::get()?;
        let geometry = shared.geometry.with_depth_at_most(queue_depth);
        Self::on(port, service, shared, geometry.ok_or(EINVAL)?)
    }

    fn on(
        port: u16,
        service: Arc<dyn Service>,
        shared: Arc<ModuleState>,
        geometry: Geometry,
    ) -> Result<Self> {
        let registry = Registry::new(shared, service, geometry)?;
        let devices = PortWatch::new(registry.clone())?;
        let listen = |on: SocketAddress| {
            cm::Listener::new(
                &on,
                LISTEN_BACKLOG.unsigned_abs(),
                Requests(registry.clone()),
            )
            .inspect_err(|e| {
                pr_err!("cannot listen on {} port {}: {:?}\n", on.address, port, e);
            })
        };
        let ip = listen(SocketAddress::any_ip(port))?;
        let ib = listen(SocketAddress::any_gid(port))?;
        Ok(Self {
            ids: Some((ip, ib)),
            registry,
            _devices: devices,
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // No new connections; waits for requests that are being answered.
        self.ids = None;
        self.registry.close();
    }
}

/// Answers connect requests.
struct Requests(Arc<Registry>);

impl ListenHandler for Requests {
    fn request(&self, request: ConnectRequest<'_>) {
        let connect = match Connect::parse(request.private()) {
            Ok(connect) => connect,
            Err(refusal) => return refuse(request, &refusal),
        };
        match self.0.known_path(&connect, &request) {
            Ok(Ok(path)) => join(&path, &connect, request),
            // Without memory, or a place, for it, the request is rejected.
            Ok(Err(origin)) => drop(self.0.answer_later(connect, origin, request)),
            Err(refusal) => refuse(request, &refusal),
        }
    }
}

/// Adds a connection to a path.
fn join(path: &Arc<Path>, connect: &Connect, request: ConnectRequest<'_>) {
    let prepared = Events::new().and_then(|events| Ok((request.prepare(events.clone())?, events)));
    match prepared {
        Ok((pending, events)) => path.join(connect, pending, &events),
        Err(e) => path.fail(PathError::Accept(connect.cid, e)),
    }
}

/// Limits the log lines, since a client may send any number of connect requests.
static REFUSED: RateLimit = RateLimit::new(5000, 10);

/// Rejects a connect request with the reason `refusal`.
fn refuse(request: ConnectRequest<'_>, refusal: &Refusal) {
    log_refusal(request.peer_address(), refusal);
    // If the reject cannot be sent, the client runs into its timeout.
    let _ = request.reject(ConnectResponse::reject(refusal.errno()).as_bytes());
}

/// Rejects a request that has a handler, as [`refuse`] does.
pub(crate) fn refuse_pending(pending: Pending, refusal: &Refusal) {
    log_refusal(pending.id().ok().and_then(Id::peer_address), refusal);
    let _ = pending.reject(ConnectResponse::reject(refusal.errno()).as_bytes());
}

fn log_refusal(peer: Option<SocketAddress>, refusal: &Refusal) {
    if let Some(suppressed) = REFUSED.allow() {
        match peer.map(|peer| peer.address) {
            Some(peer) => pr_err!(
                "connect request from {} rejected: {}\n",
                peer,
                format_args!("{refusal}")
            ),
            None => pr_err!("connect request rejected: {}\n", format_args!("{refusal}")),
        }
        if suppressed > 0 {
            pr_err!("{} more connect requests were rejected\n", suppressed);
        }
    }
}
