// SPDX-License-Identifier: GPL-2.0

//! A path: one way from us to the server, connected or not.
//!
//! Its state is `proto::path`'s. Whatever ends a connected path, be it an event of the connection
//! manager, a failed work request, a breach of the protocol, the heartbeat, sysfs or the end of the
//! session, goes through [`Path::fail`] or [`Path::close`] and is carried out by one work item,
//! [`Path::tear_down`].

use kernel::{
    impl_has_delayed_work, impl_has_work, new_mutex,
    prelude::*,
    str::CString,
    sync::{
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    errno, new_irq_lock, new_wait_queue, random,
    sync::{
        IrqLock,
        RcuArc,
        WaitQueue, //
    },
    workqueue,
};
use rdma::cm::SocketAddress;
use rtrs_core::{
    address,
    proto::{
        addr::{
            Addr,
            PathAddrs,
            PathName, //
        },
        path::{
            ClientEffect,
            ClientEvent,
            ClientState, //
        },
        RECONNECT_BACKOFF_MS, //
    },
};

use crate::{
    connect,
    fault::Fault,
    progress::Progress,
    pulse::Pulse,
    session::Session,
    stats::Stats,
    transport::{
        Connection,
        Transport, //
    },
};

/// The work item that tears down.
const TEAR_DOWN: u64 = 0;
/// The work item that is the heartbeat.
const HEARTBEAT: u64 = 1;

/// What is known of a path's ends once it has been connected.
pub(crate) struct Ends {
    pub(crate) src: Addr,
    pub(crate) device: CString,
    pub(crate) port: u32,
}

/// Guarded by the lock of set-up and teardown.
struct Attempts {
    /// Connects so far.
    count: u16,
    /// The session counts this path as up.
    up: bool,
}

/// One path of a session.
///
/// Lock order: `attempts`, then the session's locks, then `state`.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<Session>,
    pub(crate) uuid: [u8; 16],
    /// As the user gave them.
    addrs: PathAddrs,
    #[pin]
    pub(crate) ends: Mutex<Option<Ends>>,
    #[pin]
    state: IrqLock<ClientState>,
    #[pin]
    state_changed: WaitQueue,
    /// Held by whoever sets the path up or tears it down; sleeps.
    #[pin]
    attempts: Mutex<Attempts>,
    pub(crate) progress: Pin<KBox<Progress>>,
    pub(crate) pulse: Pulse,
    pub(crate) stats: Stats,
    /// There while the path is connected.
    pub(crate) transport: RcuArc<Transport>,
    #[pin]
    tear_down: Work<Path, TEAR_DOWN>,
    #[pin]
    heartbeat: DelayedWork<Path, HEARTBEAT>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Path { self.tear_down }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Path { self.heartbeat }
}

impl WorkItem<TEAR_DOWN> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        Path::tear_down(&this);
    }
}

impl WorkItem<HEARTBEAT> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        Path::beat(this);
    }
}

impl Path {
    /// Makes a path that is to be connected.
    pub(crate) fn new(session: &Arc<Session>, addrs: PathAddrs) -> Result<Arc<Self>> {
        let progress = KBox::pin_init(Progress::new(), GFP_KERNEL)?;
        let stats = Stats::new()?;
        let mut uuid = [0; 16];
        random::fill(&mut uuid);
        Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                uuid,
                addrs,
                ends <- new_mutex!(None),
                state <- new_irq_lock!(ClientState::Connecting),
                state_changed <- new_wait_queue!("Path::state_changed"),
                attempts <- new_mutex!(Attempts {
                    count: 0,
                    up: false,
                }),
                progress,
                pulse: Pulse::new(),
                stats,
                transport: RcuArc::new(None),
                tear_down <- new_work!("Path::tear_down"),
                heartbeat <- new_delayed_work!("Path::heartbeat"),
            }),
            GFP_KERNEL,
        )
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

    /// The ends for the connection manager.
    pub(crate) fn socket_addresses(&self) -> (Option<SocketAddress>, SocketAddress) {
        let src = self.addrs.src.map(|src| address::to_cm(&src, 0));
        (src, address::to_cm(&self.addrs.dst, self.session.port()))
    }

    /// Learns what only a connected identity knows.
    pub(crate) fn learn_ends(&self, admin: &Connection) -> Result<(), Fault> {
        let memory = |e| Fault::Resource("name of the device", e);
        let device = admin.id.device().ok_or(Fault::DeviceRemoval)?;
        let local = admin.id.local_address().ok_or(Fault::DeviceRemoval)?;
        let device = CString::try_from(device.name()).map_err(|e| memory(e.into()))?;
        *self.ends.lock() = Some(Ends {
            src: address::from_cm(&local.address),
            device,
            port: admin.id.port_number(),
        });
        Ok(())
    }

    pub(crate) fn state(&self) -> ClientState {
        *self.state.lock()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().carries_io()
    }

    /// Something happened: goes into the next state and says what to do.
    fn step(&self, event: ClientEvent) -> ClientEffect {
        let mut state = self.state.lock();
        let (next, effect) = state.step(event);
        *state = next;
        drop(state);
        self.state_changed.wake_all();
        effect
    }

    /// The path cannot go on. Any context; the first fault counts.
    #[cold]
    pub(crate) fn fail(this: &Arc<Self>, fault: Fault) {
        match this.step(ClientEvent::Failed) {
            ClientEffect::Recover => {
                pr_err!(
                    "session {}: {fault}, closing the path to {}\n",
                    this.session.name(),
                    this.addrs.dst
                );
                this.queue_tear_down();
            }
            // The connecting task logs it.
            ClientEffect::AbortConnect => this.progress.failed(fault),
            _ => {}
        }
    }

    fn queue_tear_down(self: &Arc<Self>) {
        // If it is queued already, that run will do.
        let _ = self
            .session
            .library
            .queue
            .enqueue::<_, TEAR_DOWN>(self.clone());
    }

    /// Connects a new path; sleeps, and can be killed. On failure the path is closed.
    pub(crate) fn connect(this: &Arc<Self>, first_conn: bool) -> Result {
        let attempts = this.attempts.lock();
        Self::attempt(this, attempts, first_conn)
    }

    /// Connects the path again, whether it is connected or not; sleeps, and can be killed.
    ///
    /// Fails with `EBUSY` if somebody else is about to connect, close or remove it, and with
    /// `ENOTCONN` if it could not be connected; then it is closed.
    pub(crate) fn reconnect(this: &Arc<Self>) -> Result {
        let mut effect = this.step(ClientEvent::Reconnect);
        if effect == ClientEffect::Recover {
            this.queue_tear_down();
            this.wait_closed();
            effect = this.step(ClientEvent::Reconnect);
        }
        if effect != ClientEffect::ScheduleStart {
            return Err(EBUSY);
        }
        // The server needs a moment to forget the last connect.
        fsleep(Delta::from_millis(RECONNECT_BACKOFF_MS.into()));
        let attempts = this.attempts.lock();
        if this.step(ClientEvent::Start) != ClientEffect::Connect {
            return Err(EBUSY);
        }
        // A session that was up once may be new to its server: that may be another one by now.
        let done = Self::attempt(this, attempts, true);
        this.stats.count_reconnect(done.is_ok());
        done.map_err(|_| errno::ENOTCONN)
    }

    /// One attempt to connect.
    fn attempt(
        this: &Arc<Self>,
        mut attempts: Guard<'_, Attempts, MutexBackend>,
        first_conn: bool,
    ) -> Result {
        attempts.count = attempts.count.wrapping_add(1);
        let done = connect::connect(this, attempts.count, first_conn).and_then(|transport| {
            drop(this.transport.replace(Some(transport)));
            match this.step(ClientEvent::Established) {
                ClientEffect::GoLive => Ok(()),
                _ => Err(this.progress.fault().unwrap_or(Fault::Asked)),
            }
        });
        attempts.up = done.is_ok();
        // Under the lock, so that the teardown finds it all. What follows takes long.
        let first = attempts.up && this.session.path_up();
        if attempts.up {
            Self::start_heartbeat(this);
        }
        drop(attempts);
        match done {
            Ok(()) => {
                if first {
                    this.session.tell_connected();
                }
                Ok(())
            }
            Err(fault) => {
                pr_err!(
                    "session {}: cannot connect to {}: {fault}\n",
                    this.session.name(),
                    this.addrs.dst
                );
                Self::close(this);
                Err(fault.error())
            }
        }
    }

    /// Closes the path and waits until nothing of it is left; sleeps. Not for the path's own work.
    pub(crate) fn close(this: &Arc<Self>) {
        if this.step(ClientEvent::Close) == ClientEffect::TearDown {
            this.progress.failed(Fault::Asked);
            this.queue_tear_down();
        }
        this.wait_closed();
    }

    fn wait_closed(&self) {
        self.state_changed
            .wait_until(|| matches!(self.state(), ClientState::Closed | ClientState::Dead));
    }

    /// Takes a closed path out of its life. Of several callers, one gets `true`.
    pub(crate) fn bury(this: &Arc<Self>) -> bool {
        Self::close(this);
        this.step(ClientEvent::Remove) == ClientEffect::Release
    }

    /// Stops everything: no IO, no heartbeat, no connection; what was in flight ends with
    /// `ECONNABORTED`.
    fn tear_down(this: &Arc<Self>) {
        let mut attempts = this.attempts.lock();
        // Two who ask at the same time make it run twice; the second time there may be a new life.
        if !matches!(
            this.state(),
            ClientState::Reconnecting | ClientState::Closing
        ) {
            return;
        }
        // The tick does not take the lock.
        drop(workqueue::cancel_delayed_sync::<_, HEARTBEAT>(this));
        if let Some(transport) = this.transport.replace(None) {
            transport.shut_down();
        }
        if core::mem::take(&mut attempts.up) {
            this.session.path_down();
        }
        // A failed path stays closed: it does not connect again by itself yet.
        this.step(ClientEvent::Close);
        this.step(ClientEvent::TornDown);
    }

    /// Returns what a reader of sysfs gets for a path that was never connected.
    pub(crate) fn with_ends<R>(&self, show: impl FnOnce(&Ends) -> Result<R>) -> Result<R> {
        match &*self.ends.lock() {
            Some(ends) => show(ends),
            None => Err(errno::ENOTCONN),
        }
    }
}
