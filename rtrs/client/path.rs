// SPDX-License-Identifier: GPL-2.0

//! A path: one way from us to the server, connected or not.
//!
//! Its state is `proto::recovery`'s. Whatever ends a connected path, be it an event of the
//! connection manager, a failed work request, a breach of the protocol, the heartbeat, sysfs or the
//! end of the session, goes through [`Path::fail`] or [`Path::close`]; what follows from it is in
//! `recovery`.

pub(crate) mod connect;
pub(crate) mod connections;
pub(crate) mod error;
pub(crate) mod heartbeat;
pub(crate) mod recovery;
pub(crate) mod resources;
pub(crate) mod setup;
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
        IrqLock,
        RcuArc,
        WaitQueue, //
    }, //
};
use rdma::{
    cm::{
        CmId,
        Id,
        SocketAddress, //
    },
    DeviceId,
    Wake, //
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
        connections::Transport, //
        error::Fault,
        heartbeat::Pulse,
        resources::Resources,
        setup::Progress,
        stats::Stats,
    },
    session::{
        quarantine::Number,
        Session, //
    }, //
};

/// The work item that tears down.
pub(crate) const TEAR_DOWN: u64 = 0;
/// The work item that is the heartbeat.
pub(crate) const HEARTBEAT: u64 = 1;
/// The work item that connects again.
pub(crate) const RECONNECT: u64 = 2;
/// The work item that looks for completions of sends.
pub(crate) const LOOK: u64 = 3;

/// What is known of a path's ends once it has been connected.
pub(crate) struct Ends {
    pub(crate) src: Addr,
    pub(crate) device: CString,
    pub(crate) port: u32,
}

/// One path of a session.
///
/// Lock order: `attempts`, then the session's locks, then `recovery`, and `farewell` alone.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<Session>,
    pub(crate) uuid: [u8; 16],
    pub(crate) number: Number,
    /// As the user gave them.
    addrs: PathAddrs,
    #[pin]
    pub(crate) ends: Mutex<Option<Ends>>,
    #[pin]
    pub(crate) recovery: IrqLock<Recovery>,
    #[pin]
    pub(crate) state_changed: WaitQueue,
    /// What the path connects with. Locked by whoever sets the path up or tears it down; sleeps.
    #[pin]
    pub(crate) attempts: Mutex<Resources>,
    /// The identifier of the last life's first connection, as long as the server may not know of
    /// that life's end: a disconnect on it is heard. `recovery` knows whether there is one. Its
    /// event handler holds the path, so it is dropped before the path is closed.
    #[pin]
    pub(crate) farewell: IrqLock<Option<Arc<CmId>>>,
    /// Attempts to connect it again that have ended.
    pub(crate) ended: AtomicU32,
    pub(crate) progress: Pin<KBox<Progress>>,
    pub(crate) pulse: Pulse,
    pub(crate) stats: Stats,
    /// There while the path is connected.
    pub(crate) transport: RcuArc<Transport>,
    #[pin]
    tear_down: Work<Path, TEAR_DOWN>,
    #[pin]
    heartbeat: DelayedWork<Path, HEARTBEAT>,
    #[pin]
    reconnect: DelayedWork<Path, RECONNECT>,
    #[pin]
    look: Work<Path, LOOK>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Path { self.tear_down }
}

impl_has_work! {
    impl HasWork<Self, 3> for Path { self.look }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Path { self.heartbeat }
    impl HasDelayedWork<Self, 2> for Path { self.reconnect }
}

impl WorkItem<TEAR_DOWN> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        memory::from_reserves(|| Path::tear_down(&this));
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
        memory::from_reserves(|| Path::connect_again(&this));
    }
}

impl WorkItem<LOOK> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        memory::without_io(|| this.look());
    }
}

/// Tells a path that a send of it has completed.
pub(crate) struct Late(pub(crate) Arc<Path>);

impl Wake for Late {
    fn wake(&self) {
        self.0.look_later();
    }
}

impl Path {
    /// Makes a path that is to be connected.
    pub(crate) fn new(session: &Arc<Session>, addrs: PathAddrs) -> Result<Arc<Self>> {
        let progress = KBox::pin_init(Progress::new(), GFP_KERNEL)?;
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
                recovery <- new_irq_lock!(Recovery::NEW),
                state_changed <- new_wait_queue!("Path::state_changed"),
                attempts <- new_mutex!(Resources::NONE),
                farewell <- new_irq_lock!(None),
                ended: AtomicU32::new(0),
                progress,
                pulse: Pulse::new(),
                stats,
                transport: RcuArc::new(None),
                tear_down <- new_work!("Path::tear_down"),
                heartbeat <- new_delayed_work!("Path::heartbeat"),
                reconnect <- new_delayed_work!("Path::reconnect"),
                look <- new_work!("Path::look"),
            }),
            GFP_KERNEL,
        )
    }

    /// Where the path leads to.
    pub(crate) fn dst(&self) -> &Addr {
        &self.addrs.dst
    }

    /// The ends as sysfs names them. The source is not known before the first connect, unless it
    /// was given.
    pub(crate) fn name(&self) -> PathName {
        let src = match &*self.ends.lock() {
            Some(ends) => ends.src,
            None => self.addrs.src.unwrap_or(match self.addrs.dst {
                Addr::V4(_) => Addr::V4([0; 4]),
                Addr::V6(_) => Addr::V6([0; 16]),
                Addr::Gid(_) => Addr::Gid([0; 16]),
            }),
        };
        PathName {
            src,
            dst: self.addrs.dst,
        }
    }

    /// Has completions of sends looked for that an answered request waits for. Any context.
    pub(crate) fn look_later(self: &Arc<Self>) {
        // If it is queued already it looks soon enough.
        let _ = self
            .session
            .library
            .queue
            .enqueue::<Arc<Path>, LOOK>(self.clone());
    }

    fn look(&self) {
        let guard = rcu::read_lock();
        if let Some(transport) = self.transport.read(&guard) {
            transport.reap_all();
        }
    }

    /// The ends for the connection manager.
    pub(crate) fn socket_addresses(&self) -> (Option<SocketAddress>, SocketAddress) {
        let src = self.addrs.src.map(|src| address::to_cm(&src, 0));
        (src, address::to_cm(&self.addrs.dst, self.session.port()))
    }

    /// The ends as far as they are known.
    pub(crate) fn known_ends(&self) -> KnownEnds {
        KnownEnds {
            asked: self.addrs,
            found: self.ends.lock().as_ref().map(|ends| ends.src),
        }
    }

    /// `EEXIST` if one of `paths` is known to have the same ends.
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

    /// Learns the ends of a path that is being added; refuses it if another path of the session has
    /// the same. Sleeps.
    pub(crate) fn claim_ends(this: &Arc<Self>, id: &Id) -> Result<(), Fault> {
        let _lock = this.session.paths_lock.lock();
        this.learn_ends(id)?;
        let ends = this.known_ends();
        let is_taken = this.session.paths.get().is_some_and(|paths| {
            let mut others = paths.0.iter().filter(|other| !Arc::ptr_eq(other, this));
            others.any(|other| other.known_ends().is_same_path(&ends))
        });
        if is_taken {
            return Err(Fault::Exists);
        }
        Ok(())
    }

    /// Learns what only an identity knows whose address is resolved.
    pub(crate) fn learn_ends(&self, id: &Id) -> Result<(), Fault> {
        let memory = |e| Fault::Resource("name of the device", e);
        let device = id.device().ok_or(Fault::DeviceRemoval)?;
        let local = id.local_address().ok_or(Fault::DeviceRemoval)?;
        let device = CString::try_from(device.name()).map_err(|e| memory(e.into()))?;
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

    /// The number of the connect that counts (`recon_cnt`).
    pub(crate) fn life(&self) -> u16 {
        self.recovery.lock().life()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().carries_io()
    }

    /// Whether the path is up, or will be without anybody's doing.
    pub(crate) fn may_come_back(&self) -> bool {
        !matches!(
            self.state(),
            ClientState::Closing | ClientState::Closed | ClientState::Dead
        )
    }

    /// Whether the path's connections go over this port.
    pub(crate) fn is_over(&self, device: DeviceId, port: u32) -> bool {
        let guard = rcu::read_lock();
        let transport = self.transport.read(&guard);
        transport.is_some_and(|transport| transport.is_over(device, port))
    }

    /// Returns what a reader of sysfs gets for a path that was never connected.
    pub(crate) fn with_ends<R>(&self, show: impl FnOnce(&Ends) -> Result<R>) -> Result<R> {
        match &*self.ends.lock() {
            Some(ends) => show(ends),
            None => Err(errno::ENOTCONN),
        }
    }
}
