// SPDX-License-Identifier: GPL-2.0

//! A path: the connections between one address of a client and one of ours, and their state.

pub(crate) mod chunks;
pub(crate) mod connections;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod fence_message;
pub(crate) mod heartbeat;
pub(crate) mod info;
mod state;
pub(crate) mod stats;
pub(crate) mod teardown;
mod work;

use kernel::{
    fmt, impl_has_delayed_work, impl_has_work, new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex,
        UniqueArc, //
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
use kernel_ext::ratelimit::RateLimit;
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel_ext::{
    new_irq_lock,
    sync::{
        GraceArc,
        IrqLock,
        SetOnce, //
    }, //
};
use rdma::{
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
    chunk_policy::ChunkPolicy,
    device::Division,
    fence::Life,
    geometry::Geometry,
    handshake::{
        Connect,
        Refusal, //
    },
    path::{
        record::Operation,
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
        error::PathError,
        fence::Fencing,
        fence_message::FenceMessage,
        heartbeat::Liveness,
        info::InfoExchange,
        state::State,
        stats::Stats, //
    },
    quota::Charge,
    session::{
        Session,
        SessionService,
        SharedService, //
    },
    sysfs::PathFiles, //
};

/// A path.
///
/// Its states are those of [`ServerState`]. A change to `Closing` queues [`Path::work`], which also
/// runs the set-up, so that set-up and teardown never run at the same time. They take no lock that
/// a completion handler waits for.
#[pin_data]
pub(crate) struct Path {
    /// The session that the path belongs to.
    pub(crate) session: Arc<Session>,
    /// The identifier of the path, which the client chose.
    uuid: [u8; 16],
    /// The client's count of connects when this path was created.
    recon_cnt: u16,
    /// The name of this path in fence messages, if the client knows them.
    pub(crate) life: Option<Life>,
    /// Connections that the client has announced.
    connection_count: u16,
    /// A copy of the session's.
    pub(crate) geometry: Geometry,
    /// A copy of the session's.
    pub(crate) policy: ChunkPolicy,
    /// The two addresses, the client's first.
    pub(crate) name: PathName,
    /// The device of all connections.
    pub(crate) device: Device,
    pub(crate) pd: Arc<Pd>,
    #[pin]
    state: State,
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
    pub(crate) fence_message: FenceMessage,
    /// The device has not flushed the connections; used by the teardown.
    is_undrained: AtomicBool,
    service: SetOnce<SharedService>,
    /// Whether the session counts it as up.
    counted: AtomicBool,
    /// The connections; taken out by the teardown.
    #[pin]
    connections: IrqLock<Option<GraceArc<Connections>>>,
    /// Held while a connection is added; the time of the last one.
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
    #[pin]
    fence_answer: Work<Path, 3>,
    /// The time at which the path was created.
    begun: Instant<Monotonic>,
    /// Dropped last.
    charge: Charge,
}

/// Lines about paths that are closed: clients cause them. More than a server of many paths has at
/// once when a link of it goes down.
static FAILED: RateLimit = RateLimit::new(5000, 256);

/// Lines about paths that clients disconnect: as many.
static DISCONNECTED: RateLimit = RateLimit::new(5000, 256);

impl_has_work! {
    impl HasWork<Self, 0> for Path { self.work }
}

impl_has_work! {
    impl HasWork<Self, 2> for Path { self.resume }
}

impl_has_work! {
    impl HasWork<Self, 3> for Path { self.fence_answer }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Path { self.tick }
}

impl Path {
    /// Maps and registers the session's chunks for the path of a connect request, and returns what
    /// makes the path of them, which allocates nothing. Sleeps.
    pub(crate) fn prepare<'a>(
        session: &'a Arc<Session>,
        connect: &'a Connect,
        device: &Device,
        name: PathName,
        charge: Charge,
    ) -> Result<impl FnOnce() -> Result<Arc<Self>, Refusal> + 'a, Refusal> {
        let pd = Pd::new(device).map_err(|_| Refusal::NoMemory)?;
        let mappings = chunks::map(session, &pd).map_err(|_| Refusal::NoMemory)?;
        let division = chunks::divide(session, &pd, &mappings).map_err(Refusal::Device)?;
        let chunks = (&*mappings, division);
        let begin = Self::on(pd, chunks, session, connect, name, charge);
        let begin = begin.map_err(|_| Refusal::NoMemory)?;
        Ok(move || begin().map_err(|_| Refusal::NoMemory))
    }

    /// The rest of [`Self::prepare`], with the chunks mapped for the domain, and their division.
    fn on<'a>(
        pd: Arc<Pd>,
        chunks: (&[Arc<PageMapping>], Division),
        session: &'a Arc<Session>,
        connect: &'a Connect,
        name: PathName,
        charge: Charge,
    ) -> Result<impl FnOnce() -> Result<Arc<Self>> + 'a> {
        let connections = Connections::new(connect.cid_num)?;
        let chunks = Chunks::new(session, &pd, chunks, &connections)?;
        let info = InfoExchange::new(&pd)?;
        let stats = Stats::new()?;
        let memory = UniqueArc::<Self>::new_uninit(GFP_KERNEL)?;
        let begin = move || {
            let path = memory.pin_init_with(pin_init!(Self {
                session: session.clone(),
                uuid: connect.sess_uuid,
                recon_cnt: connect.recon_cnt,
                life: connect.fences.then(|| session.next_life()).flatten(),
                connection_count: connect.cid_num,
                geometry: *session.geometry(),
                policy: session.policy,
                name,
                device: pd.device().clone(),
                pd,
                state <- State::new(),
                liveness: Liveness::new(),
                vector: AtomicU32::new(0),
                stats,
                chunks <- chunks,
                info <- info,
                fencing <- Fencing::new(),
                fence_message: FenceMessage::new(),
                is_undrained: AtomicBool::new(false),
                service: SetOnce::new(),
                counted: AtomicBool::new(false),
                connections <- new_irq_lock!(Some(connections), "Path::connections"),
                joined <- new_mutex!(Instant::now(), "Path::joined"),
                files <- new_mutex!(None, "Path::files"),
                work <- new_work!("Path::work"),
                tick <- new_delayed_work!("Path::tick"),
                resume <- new_work!("Path::resume"),
                fence_answer <- new_work!("Path::fence_answer"),
                begun: Instant::now(),
                charge,
            }))?;
            let path = Arc::from(path);
            path.tick_in(heartbeat::FIRST_TICK_MS);
            Ok(path)
        };
        Ok(begin)
    }

    /// Returns the connections, while the guard lives; `None` once the teardown has taken them. Any
    /// context.
    pub(crate) fn connections<'a>(&self, guard: &'a rcu::Guard) -> Option<&'a Connections> {
        self.connections.lock().as_ref().map(|all| all.under(guard))
    }

    /// Returns the connections. Waits for one that is being added.
    pub(crate) fn joined(&self) -> Option<GraceArc<Connections>> {
        let _joined = self.joined.lock();
        self.connections.lock().clone()
    }

    /// Charges the memory of a connection, `bytes`; `ENOMEM`.
    fn charge_connection(&self, bytes: u64) -> Result<Charge> {
        self.charge.another(bytes)
    }

    /// Returns the milliseconds since the path was made.
    pub(crate) fn age_ms(&self) -> u32 {
        u32::try_from(self.begun.elapsed().as_millis()).unwrap_or(u32::MAX)
    }

    /// Returns the milliseconds since the last connection was added.
    pub(crate) fn idle_ms(&self) -> u32 {
        let joined = *self.joined.lock();
        u32::try_from(joined.elapsed().as_millis()).unwrap_or(u32::MAX)
    }

    /// Returns what `proto::admission` has to know of this path for a connect request of path
    /// `uuid` between the addresses of `name`.
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

    /// Returns what `proto::admission` has to know of this path when another session asks for its
    /// session's name.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            state: self.state(),
            heard: self.liveness.missed() == 0,
        }
    }

    /// Returns whether `later` replaces this path, which is older.
    pub(crate) fn precedes(&self, later: &Path) -> bool {
        self.known(&later.uuid, &later.name).is_rival()
    }

    /// Releases a request context: the chunk may carry a request again. Any context.
    #[inline]
    pub(crate) fn release(&self, context: KBox<RequestContext>) {
        self.chunks.release(context);
        if !self.is_up() {
            self.released_while_closing();
        }
    }

    /// Wakes the teardown, and requests on other paths, which may wait for the context that was
    /// released while the path is not up.
    #[cold]
    fn released_while_closing(&self) {
        self.chunks.wake_teardown();
        fence::resume_peers(self);
    }

    /// Returns whether the path has this number in fence messages.
    pub(crate) fn is_number(&self, number: u32) -> bool {
        self.life.is_some_and(|life| life.number() == number)
    }

    /// Returns the completion vector of the next connection, which spreads them over the device's.
    pub(crate) fn next_vector(&self) -> u32 {
        self.vector.fetch_add(1, Relaxed)
    }

    /// Returns the service of the requests, once the path is up.
    #[inline]
    pub(crate) fn service(&self) -> Option<&dyn SessionService> {
        self.service.as_ref().map(|s| &***s)
    }

    /// Sets the service of the requests, once.
    pub(crate) fn serve_with(&self, service: SharedService) {
        self.service.populate(service);
    }

    pub(crate) fn state(&self) -> ServerState {
        self.state.get()
    }

    /// Returns whether requests are served.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.state.is_up()
    }

    /// Applies `event` to the state; returns what the caller must do.
    pub(crate) fn step(&self, event: ServerEvent) -> ServerEffect {
        self.state.step(event)
    }

    /// Records what is about to be done. Any context.
    pub(crate) fn did(&self, operation: Operation) {
        self.state.did(operation);
    }

    /// Returns what the path is called in log lines: `session NAME: path SRC@DST`.
    pub(crate) fn label(&self) -> Label<'_> {
        Label(self)
    }

    /// Closes the path, if it is not being closed. Any context; a work item does the teardown.
    pub(crate) fn close(self: &Arc<Self>) {
        if self.step(ServerEvent::Close) == ServerEffect::TearDown {
            self.queue_tear_down();
        }
    }

    /// Closes the path, whose client has disconnected, and logs that: a client that has met an
    /// error says no more.
    #[cold]
    pub(crate) fn disconnected(self: &Arc<Self>) {
        if self.step(ServerEvent::Close) == ServerEffect::TearDown {
            if DISCONNECTED.allow().is_some() {
                pr_info!("{}: the client has disconnected\n", self.label());
            }
            self.queue_tear_down();
        }
    }

    /// Closes the path because of an error, and logs it.
    #[cold]
    pub(crate) fn fail(self: &Arc<Self>, why: PathError<'_>) {
        if self.state.fail() {
            self.log_failure(why);
            self.queue_tear_down();
        }
    }

    /// Closes the path because of an error that was [logged](Self::log_failure).
    #[cold]
    pub(crate) fn fail_logged(self: &Arc<Self>) {
        if self.state.fail() {
            self.queue_tear_down();
        }
    }

    /// Logs why the path is closed.
    #[cold]
    pub(crate) fn log_failure(&self, why: PathError<'_>) {
        let Some(suppressed) = FAILED.allow() else {
            return;
        };
        pr_err!("{}: {}, path closed\n", self.label(), why);
        if suppressed > 0 {
            pr_err!("{} more paths were closed\n", suppressed);
        }
    }

    /// Handles a request that came while the path was not up; returns whether it is served, as the
    /// path has gone up since. Before the set-up is done it is an error of the client, which does
    /// not have the keys yet; while the path is closing it is ignored.
    #[cold]
    pub(crate) fn early_request(self: &Arc<Self>) -> bool {
        let effect = self.step(ServerEvent::Request);
        if effect == ServerEffect::TearDown {
            self.log_failure(PathError::EarlyRequest);
            self.queue_tear_down();
        }
        effect == ServerEffect::Serve
    }

    /// Records the info request, and queues the work item that handles it and may sleep.
    #[cold]
    pub(crate) fn info_received(self: &Arc<Self>, len: u32) {
        self.info.received(len);
        self.queue_work();
    }

    /// Tries the set-up again after an event that the info request may wait for: the end of another
    /// path, or the release of the session's name.
    pub(crate) fn set_up_again(self: &Arc<Self>) {
        if self.info.is_received() {
            self.queue_work();
        }
    }
}

/// The name of a path in log lines.
pub(crate) struct Label<'a>(&'a Path);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Label(Path { session, name, .. }) = self;
        // The client names the session when all connections of its first path are there.
        if !session.name().is_empty() {
            f.write_fmt(fmt!("session {}: ", session.name()))?;
        }
        f.write_fmt(fmt!("path {name}"))
    }
}
