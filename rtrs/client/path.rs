// SPDX-License-Identifier: GPL-2.0

//! A path between us and the server, connected or not.
//!
//! `proto::recovery` holds its state. Everything that ends a connected path, be it an event of the
//! connection manager, a failed work request, a violation of the protocol, the heartbeat, sysfs or
//! the end of the session, goes through [`Path::fail`] or [`Path::close`]; `recovery` carries out
//! what follows.

mod admission;
pub(crate) mod connect;
pub(crate) mod connections;
pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod heartbeat;
mod queue_pair;
pub(crate) mod recovery;
mod registration;
pub(crate) mod resources;
pub(crate) mod setup;
mod stale_connection;
pub(crate) mod stats;

use kernel::{
    impl_has_delayed_work, impl_has_work, new_mutex,
    prelude::*,
    str::CString,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
    workqueue::{
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    },
};
use kernel_ext::sync::atomic::AtomicU32;
use kernel_ext::{
    errno,
    memory,
    new_irq_lock,
    new_wait_queue,
    random,
    sync::{
        synchronize_rcu,
        IrqLock,
        RcuLent,
        WaitQueue, //
    },
    workqueue::{
        DelayedItem,
        WorkQueue, //
    }, //
};
use rdma::{
    cm::{
        CmId,
        Id,
        SocketAddress, //
    },
    DeviceId,
    Notify, //
};
use rtrs_core::{
    address,
    proto::{
        addr::{
            Addr,
            KnownEnds,
            PathAddrs,
            PathName, //
        },
        path::ClientState,
        recovery::Recovery, //
    },
};

use crate::client::{
    path::{
        connections::Connections, //
        error::PathError,
        fence::Question,
        heartbeat::Liveness,
        resources::Resources,
        setup::Setup,
        stats::Stats,
    },
    session::{
        quarantine::Number,
        Session, //
    },
    trace::Traced, //
};

/// Id of the teardown work item.
pub(crate) const TEAR_DOWN: u64 = 0;
/// Id of the heartbeat work item.
pub(crate) const HEARTBEAT: u64 = 1;
/// Id of the work item that connects again.
pub(crate) const RECONNECT: u64 = 2;
/// Id of the work item that polls for completions of sends.
pub(crate) const POLL_SEND_CQS: u64 = 3;
/// Id of the work item that takes up answers that were put aside.
pub(crate) const PUT_ASIDE: u64 = 4;

/// The ends of a path that are known once it has been connected.
pub(crate) struct Ends {
    pub(crate) src: Addr,
    pub(crate) device: CString,
    pub(crate) port: u32,
}

/// One path of a session.
///
/// Lock order: `attempts`, then the turn of a `question` of any path, then the session's locks,
/// then `recovery`, and `stale_connection` alone.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<Session>,
    pub(crate) uuid: [u8; 16],
    pub(crate) number: Number,
    /// The ends as the user gave them.
    addrs: PathAddrs,
    #[pin]
    pub(crate) ends: Mutex<Option<Ends>>,
    #[pin]
    pub(crate) recovery: IrqLock<Traced<Recovery>>,
    #[pin]
    pub(crate) state_changed: WaitQueue,
    /// The resources with which the path connects. The thread that sets the path up or tears it
    /// down holds the lock; sleeps.
    #[pin]
    pub(crate) attempts: Mutex<Resources>,
    /// The identifier of the last life's first connection, as long as the server may not have
    /// noticed the end of that life: a disconnect on it tells the server. `recovery` knows whether
    /// there is one. Its event handler holds the path, so it is dropped before the path is closed.
    #[pin]
    pub(crate) stale_connection: IrqLock<Option<Arc<CmId>>>,
    /// Attempts to connect it again that have ended.
    pub(crate) ended: AtomicU32,
    /// The number of connections of this life that the peer has disconnected.
    disconnected: AtomicU32,
    pub(crate) setup: Pin<KBox<Setup>>,
    pub(crate) liveness: Liveness,
    #[pin]
    pub(crate) question: Question,
    pub(crate) stats: Stats,
    /// Set while the path is connected. The teardown must be alone with what it takes out, as it
    /// renews regions whose keys may be valid.
    pub(crate) connections: RcuLent<Connections>,
    /// Set while messages are sent over connections that are not published yet: their completions
    /// are handled as those of the others.
    asked: RcuLent<Connections>,
    #[pin]
    tear_down: DelayedWork<Path, TEAR_DOWN>,
    #[pin]
    heartbeat: DelayedWork<Path, HEARTBEAT>,
    #[pin]
    reconnect: DelayedWork<Path, RECONNECT>,
    #[pin]
    poll_send_cqs: Work<Path, POLL_SEND_CQS>,
    #[pin]
    put_aside: Work<Path, PUT_ASIDE>,
}

impl_has_work! {
    impl HasWork<Self, 3> for Path { self.poll_send_cqs }
    impl HasWork<Self, 4> for Path { self.put_aside }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Path { self.tear_down }
    impl HasDelayedWork<Self, 1> for Path { self.heartbeat }
    impl HasDelayedWork<Self, 2> for Path { self.reconnect }
}

impl WorkItem<TEAR_DOWN> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        this.session.while_io_waits(|| this.tear_down());
    }
}

impl DelayedItem<TEAR_DOWN> for Path {
    fn wq(&self) -> &WorkQueue {
        &self.session.module.queue
    }
}

impl DelayedItem<HEARTBEAT> for Path {
    fn wq(&self) -> &WorkQueue {
        &self.session.module.queue
    }
}

impl DelayedItem<RECONNECT> for Path {
    fn wq(&self) -> &WorkQueue {
        &self.session.module.connect_queue
    }
}

impl WorkItem<HEARTBEAT> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        memory::without_io(|| Path::beat(this));
    }
}

impl WorkItem<RECONNECT> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        this.session.while_io_waits(|| this.connect_again());
    }
}

impl WorkItem<POLL_SEND_CQS> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        memory::without_io(|| this.poll_send_cqs());
    }
}

impl WorkItem<PUT_ASIDE> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        memory::without_io(|| this.take_up_answers());
    }
}

/// Notifies a path that a send has completed, or that a completion queue is broken.
pub(crate) struct SendCqNotify(pub(crate) Arc<Path>);

impl Notify for SendCqNotify {
    fn notify(&self) {
        self.0.queue_poll_send_cqs();
    }

    #[cold]
    fn broken(&self) {
        let fault = PathError::Broken(c"completion queue has lost completions");
        self.0.fail(fault);
    }
}

impl Path {
    /// Allocates a path that is to be connected.
    pub(crate) fn new(session: &Arc<Session>, addrs: PathAddrs) -> Result<Arc<Self>> {
        let setup = KBox::pin_init(Setup::new(), GFP_KERNEL)?;
        let stats = Stats::new()?;
        let number = Number::new(session)?;
        let mut uuid = [0; 16];
        random::fill(&mut uuid);
        Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                uuid,
                number,
                addrs,
                ends <- new_mutex!(None),
                recovery <- new_irq_lock!(Traced::new(Recovery::NEW)),
                state_changed <- new_wait_queue!("Path::state_changed"),
                attempts <- new_mutex!(Resources::NONE),
                stale_connection <- new_irq_lock!(None),
                ended: AtomicU32::new(0),
                disconnected: AtomicU32::new(0),
                setup,
                liveness: Liveness::new(),
                question <- Question::new(),
                stats,
                connections: RcuLent::new(None),
                asked: RcuLent::new(None),
                tear_down <- new_delayed_work!("Path::tear_down"),
                heartbeat <- new_delayed_work!("Path::heartbeat"),
                reconnect <- new_delayed_work!("Path::reconnect"),
                poll_send_cqs <- new_work!("Path::poll_send_cqs"),
                put_aside <- new_work!("Path::put_aside"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the address of the server's end.
    pub(crate) fn dst(&self) -> &Addr {
        &self.addrs.dst
    }

    /// Returns the ends as sysfs names them. The source is not known before the first connect,
    /// unless it was given.
    pub(crate) fn name(&self) -> PathName {
        let src = match &*self.ends.lock() {
            Some(ends) => ends.src,
            None => self.addrs.src.unwrap_or(match self.addrs.dst {
                Addr::V4(_) => Addr::V4([0; 4]),
                Addr::V6(_) | Addr::LinkLocal(..) => Addr::V6([0; 16]),
                Addr::Gid(_) => Addr::Gid([0; 16]),
            }),
        };
        PathName {
            src,
            dst: self.addrs.dst,
        }
    }

    /// Queues the work item that polls for completions of sends. Any context.
    pub(crate) fn queue_poll_send_cqs(self: &Arc<Self>) {
        // If it is queued already, that run polls soon enough.
        let _ = self
            .session
            .module
            .queue
            .enqueue::<Arc<Path>, POLL_SEND_CQS>(self.clone());
    }

    /// Queues the work item that takes up the answers that were put aside. Any context.
    #[cold]
    pub(crate) fn queue_put_aside(self: &Arc<Self>) {
        // If it is queued already, that run sees them.
        let _ = self
            .session
            .module
            .queue
            .enqueue::<Arc<Path>, PUT_ASIDE>(self.clone());
    }

    /// Takes up the answers that were put aside.
    fn take_up_answers(&self) {
        while self.with_connections(Connections::take_up_answers) == Some(true) {
            // Who was about to post then has posted after this.
            synchronize_rcu();
        }
    }

    fn poll_send_cqs(&self) {
        self.with_connections(Connections::poll_send_cq_or_notify);
    }

    /// Calls `deed` for the connections that the path has, published to senders or not.
    fn with_connections<R>(&self, deed: impl FnOnce(&Connections) -> R) -> Option<R> {
        let guard = rcu::read_lock();
        let published = self.connections.read(&guard);
        published.or_else(|| self.asked.read(&guard)).map(deed)
    }

    /// Calls `ask`, which sends messages over `connections`, before they are published to senders.
    /// Sleeps.
    pub(crate) fn asking<R>(&self, connections: &Arc<Connections>, ask: impl FnOnce() -> R) -> R {
        drop(self.asked.replace(Some(connections.clone())));
        let answer = ask();
        drop(self.asked.replace(None));
        answer
    }

    /// Returns the ends for the connection manager.
    pub(crate) fn socket_addresses(
        &self,
    ) -> Result<(Option<SocketAddress>, SocketAddress), PathError> {
        let to_cm = |addr, port| address::to_cm(addr, port).ok_or(PathError::Interface);
        let src = self.addrs.src.as_ref().map(|src| to_cm(src, 0));
        Ok((
            src.transpose()?,
            to_cm(&self.addrs.dst, self.session.port())?,
        ))
    }

    /// Returns the ends as far as they are known.
    pub(crate) fn known_ends(&self) -> KnownEnds {
        KnownEnds {
            asked: self.addrs,
            found: self.ends.lock().as_ref().map(|ends| ends.src),
        }
    }

    /// Fails with `EEXIST` if one of `paths` is known to have the same ends.
    pub(crate) fn check_new(&self, paths: &[Arc<Self>]) -> Result {
        let ends = self.known_ends();
        if !paths.iter().any(|p| p.known_ends().is_same_path(&ends)) {
            return Ok(());
        }
        pr_err!(
            "session {}: the path to {} exists\n",
            self.session.name(),
            self.dst()
        );
        Err(EEXIST)
    }

    /// Stores the ends of a path that is being added; fails if another path of the session has the
    /// same. Sleeps.
    pub(crate) fn claim_ends(self: &Arc<Self>, id: &Id) -> Result<(), PathError> {
        let _lock = self.session.paths_lock.lock();
        self.learn_ends(id)?;
        let ends = self.known_ends();
        let is_taken = self.session.paths.get().is_some_and(|paths| {
            let mut others = paths.all.iter().filter(|other| !Arc::ptr_eq(other, self));
            others.any(|other| other.known_ends().is_same_path(&ends))
        });
        if is_taken {
            return Err(PathError::Exists);
        }
        Ok(())
    }

    /// Stores what is known only to an identifier whose address is resolved.
    pub(crate) fn learn_ends(&self, id: &Id) -> Result<(), PathError> {
        let memory = |e| PathError::Resource("name of the device", e);
        let device = id.device().ok_or(PathError::DeviceRemoval)?;
        let local = id.local_address().ok_or(PathError::DeviceRemoval)?;
        let device = CString::try_from(&*device.name()).map_err(|e| memory(e.into()))?;
        *self.ends.lock() = Some(Ends {
            src: address::from_cm(&local.address),
            device,
            port: id.port_number(),
        });
        Ok(())
    }

    pub(crate) fn state(&self) -> ClientState {
        self.recovery.lock().state()
    }

    /// Returns the number of the current connect (`recon_cnt`).
    pub(crate) fn life(&self) -> u16 {
        self.recovery.lock().life()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().carries_io()
    }

    /// Returns whether the path is connected, or will connect without a request of the user.
    pub(crate) fn may_come_back(&self) -> bool {
        !matches!(
            self.state(),
            ClientState::Closing | ClientState::Closed | ClientState::Dead
        )
    }

    /// Returns whether the path's connections use this port; [`None`]: any of the device.
    pub(crate) fn is_over(&self, device: DeviceId, port: Option<u32>) -> bool {
        let guard = rcu::read_lock();
        let connections = self.connections.read(&guard);
        connections.is_some_and(|connections| connections.is_over(device, port))
    }

    /// Calls `show` with the ends; `ENOTCONN` for a path that was never connected.
    pub(crate) fn with_ends<R>(&self, show: impl FnOnce(&Ends) -> Result<R>) -> Result<R> {
        match &*self.ends.lock() {
            Some(ends) => show(ends),
            None => Err(errno::ENOTCONN),
        }
    }
}
