// SPDX-License-Identifier: GPL-2.0

//! A path: the connections between one address of a client and one of ours, and what they share.

pub(crate) mod chunks;
pub(crate) mod connections;
pub(crate) mod fence;
pub(crate) mod heartbeat;
pub(crate) mod info;
pub(crate) mod stats;
pub(crate) mod teardown;
mod work;

use core::fmt;

use kernel::{
    impl_has_delayed_work, impl_has_work, new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    },
    workqueue::{
        new_delayed_work,
        new_work,
        DelayedWork,
        Work, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU8,
    Ordering::{
        Relaxed,
        SeqCst, //
    },
};
use kernel_ext::{
    sync::{
        RcuArc,
        SetOnce, //
    },
    workqueue, //
};
use rdma::{
    cm::ConnectRequest,
    Device,
    PageMapping,
    Pd, //
};
use rtrs_core::proto::{
    addr::PathName,
    admission::{
        Holder,
        Known, //
    },
    device::Division,
    geometry::Geometry,
    handshake::{
        Connect,
        Refusal, //
    },
    path::{
        ServerEffect,
        ServerEvent,
        ServerState, //
    },
};

use crate::server::{
    io::request::RequestContext, //
    path::{
        chunks::Chunks,
        connections::Connections,
        fence::Fencing,
        heartbeat::Liveness,
        info::InfoExchange,
        stats::Stats, //
    },
    quota::Charge,
    session::{
        Session,
        SessionService, //
    },
    sysfs::PathFiles, //
};

/// A path.
///
/// Its life is that of [`ServerState`]; whatever takes it to `Closing` queues [`Path::work`], which
/// also runs the set-up, so that the two never meet. Set-up and teardown take no lock that a
/// completion handler waits for.
#[pin_data]
pub(crate) struct Path {
    /// The session that the path belongs to.
    pub(crate) session: Arc<Session>,
    /// Name of the path among the client's.
    uuid: [u8; 16],
    /// How often its client had connected it when this was made.
    recon_cnt: u16,
    /// Connections that the client has announced.
    connection_count: u16,
    /// The session's, close at hand.
    pub(crate) geometry: Geometry,
    /// The session's, close at hand.
    pub(crate) always_invalidate: bool,
    /// Both addresses, the client's first.
    pub(crate) name: PathName,
    /// The device of all connections.
    pub(crate) device: Device,
    pub(crate) pd: Arc<Pd>,
    state: AtomicU8,
    pub(crate) liveness: Liveness,
    /// Completion vector of the next connection.
    vector: AtomicU32,
    pub(crate) stats: Stats,
    #[pin]
    pub(crate) chunks: Chunks,
    #[pin]
    pub(crate) info: InfoExchange,
    #[pin]
    pub(crate) fencing: Fencing,
    /// The path is closed for a fault, perhaps that of a link.
    has_failed: AtomicBool,
    service: SetOnce<Arc<dyn SessionService>>,
    /// Counted by the session as up.
    counted: AtomicBool,
    /// The connections; taken out by the teardown.
    pub(crate) connections: RcuArc<Connections>,
    /// Held while a connection is added.
    #[pin]
    joined: Mutex<Instant<Monotonic>>,
    #[pin]
    pub(crate) files: Mutex<Option<PathFiles>>,
    #[pin]
    work: Work<Path, 0>,
    #[pin]
    tick: DelayedWork<Path, 1>,
    #[pin]
    resume: Work<Path, 2>,
    /// Given back last.
    _charge: Charge,
}

impl_has_work! {
    impl HasWork<Self, 0> for Path { self.work }
}

impl_has_work! {
    impl HasWork<Self, 2> for Path { self.resume }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Path { self.tick }
}

impl Path {
    /// Makes the path of a connect request: maps and registers the session's chunks. Sleeps.
    pub(crate) fn new(
        session: &Arc<Session>,
        connect: &Connect,
        request: &ConnectRequest<'_>,
        name: PathName,
        charge: Charge,
    ) -> Result<Arc<Self>, Refusal> {
        let pd = Pd::new(request.device()).map_err(|_| Refusal::NoMemory)?;
        let mappings = chunks::map(session, &pd).map_err(|_| Refusal::NoMemory)?;
        let division = chunks::divide(session, &pd, &mappings).map_err(Refusal::Device)?;
        let chunks = (&*mappings, division);
        Self::on(pd, chunks, session, connect, name, charge).map_err(|_| Refusal::NoMemory)
    }

    /// The rest of [`Self::new`]: `chunks` are mapped for the domain, and divided so.
    fn on(
        pd: Arc<Pd>,
        chunks: (&[Arc<PageMapping>], Division),
        session: &Arc<Session>,
        connect: &Connect,
        name: PathName,
        charge: Charge,
    ) -> Result<Arc<Self>> {
        let connections = Connections::new(connect.cid_num)?;
        let chunks = Chunks::new(session, &pd, chunks, &connections)?;
        let info = InfoExchange::new(&pd)?;
        let stats = Stats::new()?;
        let path = Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                uuid: connect.sess_uuid,
                recon_cnt: connect.recon_cnt,
                connection_count: connect.cid_num,
                geometry: *session.geometry(),
                always_invalidate: session.always_invalidate(),
                name,
                device: pd.device().clone(),
                pd,
                state: AtomicU8::new(ServerState::Connecting as u8),
                liveness: Liveness::new(),
                vector: AtomicU32::new(0),
                stats,
                chunks <- chunks,
                info <- info,
                fencing <- Fencing::new(),
                has_failed: AtomicBool::new(false),
                service: SetOnce::new(),
                counted: AtomicBool::new(false),
                connections: RcuArc::new(Some(connections)),
                joined <- new_mutex!(Instant::now(), "Path::joined"),
                files <- new_mutex!(None, "Path::files"),
                work <- new_work!("Path::work"),
                tick <- new_delayed_work!("Path::tick"),
                resume <- new_work!("Path::resume"),
                _charge: charge,
            }),
            GFP_KERNEL,
        )?;
        path.tick_in(heartbeat::FIRST_TICK_MS);
        Ok(path)
    }

    /// Adds a connection; answers the request either way.
    pub(crate) fn join(self: &Arc<Self>, connect: &Connect, request: ConnectRequest<'_>) {
        let mut joined = self.joined.lock();
        let connections = self.connections.get();
        let connecting = self.state() == ServerState::Connecting;
        let taken = connections
            .as_ref()
            .is_none_or(|c| c.get(connect.cid).is_some());
        let checked = connect.check_known_path(connecting, self.connection_count, taken);
        let connections = match (checked, connections) {
            (Ok(()), Some(connections)) => connections,
            (Err(refusal), _) => return super::listener::refuse(request, &refusal),
            (Ok(()), None) => return super::listener::refuse(request, &Refusal::PathState),
        };
        *joined = Instant::now();
        if let Err(e) = connections::accept(self, &connections, connect.cid, request) {
            self.fail(format_args!(
                "connection {} cannot be made ({e:?})",
                connect.cid
            ));
        }
    }

    /// The connections. Waits for one that is being added.
    pub(crate) fn joined(&self) -> Option<Arc<Connections>> {
        let _joined = self.joined.lock();
        self.connections.get()
    }

    /// Milliseconds since the last connection was added.
    pub(crate) fn idle_ms(&self) -> u32 {
        let joined = *self.joined.lock();
        u32::try_from(joined.elapsed().as_millis()).unwrap_or(u32::MAX)
    }

    /// What a connect request for path `uuid` between the addresses of `name` finds of this one.
    pub(crate) fn known(&self, uuid: &[u8; 16], name: &PathName) -> Known {
        Known {
            same_path: self.uuid == *uuid,
            same_addresses: self.name == *name,
            recon_cnt: self.recon_cnt,
            state: self.state(),
            // The tick that sends the heartbeat counts as the first.
            silent: self.liveness.missed() > 1,
        }
    }

    /// What a session that asks for the name of this path's session finds of it.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            state: self.state(),
            heard: self.liveness.missed() == 0,
        }
    }

    /// Whether `later` takes the place of this path, which was there before it.
    pub(crate) fn precedes(&self, later: &Path) -> bool {
        self.known(&later.uuid, &later.name).is_rival()
    }

    /// Puts a slot back into its place: the chunk may carry a request again. Any context.
    #[inline]
    pub(crate) fn release(&self, context: KBox<RequestContext>) {
        self.chunks.release(context);
        if !self.is_up() {
            self.parked_while_closing();
        }
    }

    /// A slot has been parked although the path is not up: its teardown and requests on other paths
    /// may wait for that.
    #[cold]
    fn parked_while_closing(&self) {
        self.chunks.wake_teardown();
        fence::resume_peers(self);
    }

    /// Spreads the connections over the device's completion vectors.
    pub(crate) fn next_vector(&self) -> u32 {
        self.vector.fetch_add(1, Relaxed)
    }

    /// What serves the requests, once the path is up.
    #[inline]
    pub(crate) fn service(&self) -> Option<&dyn SessionService> {
        self.service.as_ref().map(|s| &**s)
    }

    /// Sets what serves the requests, once.
    pub(crate) fn serve_with(&self, service: Arc<dyn SessionService>) {
        self.service.populate(service);
    }

    pub(crate) fn state(&self) -> ServerState {
        ServerState::from_u8(self.state.load(SeqCst)).unwrap_or(ServerState::Closed)
    }

    /// Whether requests are served.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.state.load(SeqCst) == ServerState::Connected as u8
    }

    /// Lets `event` happen; returns what is to be done about it.
    pub(crate) fn step(&self, event: ServerEvent) -> ServerEffect {
        let mut old = self.state();
        loop {
            let (new, effect) = old.step(event);
            let swapped = self
                .state
                .compare_exchange(old as u8, new as u8, SeqCst, SeqCst);
            match swapped {
                Ok(_) => return effect,
                Err(_) => old = self.state(),
            }
        }
    }

    /// Closes the path, if it is not being closed. Any context; what there is to do is done later.
    pub(crate) fn close(self: &Arc<Self>) {
        if self.step(ServerEvent::Close) == ServerEffect::TearDown {
            self.queue_work();
        }
    }

    /// Closes the path, and says why.
    #[cold]
    pub(crate) fn fail(self: &Arc<Self>, why: fmt::Arguments<'_>) {
        if self.step(ServerEvent::Close) == ServerEffect::TearDown {
            self.has_failed.store(true, SeqCst);
            pr_err!("{}: {}, path closed\n", format_args!("{}", self.name), why);
            self.queue_work();
        }
    }

    /// A request has come although the path is not up: that is a mistake of a client that has not
    /// been told where to put it, and nothing at all when the path is being closed.
    #[cold]
    pub(crate) fn early_request(self: &Arc<Self>) {
        if self.step(ServerEvent::Request) == ServerEffect::TearDown {
            pr_err!(
                "{}: request before the path is set up, path closed\n",
                format_args!("{}", self.name)
            );
            self.queue_work();
        }
    }

    /// The info request has come: it is looked at where sleeping is no harm.
    #[cold]
    pub(crate) fn info_received(self: &Arc<Self>, len: u32) {
        self.info.received(len);
        self.queue_work();
    }

    /// What this one's info request waits for, the end of another path or the session's name, may
    /// have come.
    pub(crate) fn set_up_again(self: &Arc<Self>) {
        if self.info.is_received() {
            self.queue_work();
        }
    }

    fn queue_work(self: &Arc<Self>) {
        // If it is queued already it will see the state that it is called for.
        let _ = self.session.queue().enqueue::<Arc<Path>, 0>(self.clone());
    }

    /// Makes the next tick happen in `delay_ms`, for whoever knows that the path is not being torn
    /// down.
    pub(crate) fn tick_in(self: &Arc<Self>, delay_ms: u32) {
        workqueue::mod_delayed::<Path, 1>(self.session.queue(), self.clone(), delay_ms);
    }

    /// Has the requests that wait looked at again. Any context.
    pub(crate) fn queue_resume(self: &Arc<Self>) {
        // If it runs already it will run once more.
        let _ = self.session.queue().enqueue::<Arc<Path>, 2>(self.clone());
    }

    /// Waits until nobody looks at the requests that wait.
    pub(crate) fn stop_resume(self: &Arc<Self>) {
        drop(workqueue::cancel_sync::<Path, 2>(self));
    }

    /// Ends the ticks, and waits for one that runs.
    pub(crate) fn stop_ticks(self: &Arc<Self>) {
        drop(workqueue::cancel_delayed_sync::<Path, 1>(self));
    }
}
