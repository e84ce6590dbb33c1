// SPDX-License-Identifier: GPL-2.0

//! A session: a name, and the paths to the server that knows it.

pub(crate) mod admin;
pub(crate) mod answer;
pub(crate) mod failover;
pub(crate) mod multipath;
pub(crate) mod outage;
pub(crate) mod paths;
pub(crate) mod permit;
pub(crate) mod quarantine;
mod routes;
pub(crate) mod settings;
pub(crate) mod together;

use kernel::{
    new_mutex,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
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
        DelayedWork, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU8,
    Ordering, //
};
use kernel_ext::{
    cpu::num_online_cpus,
    new_irq_lock,
    percpu::{
        Counter,
        PerCpu, //
    },
    random,
    sync::{
        IrqLock,
        RcuArc, //
    }, //
};
use rtrs_core::proto::{
    addr::{
        self,
        PathAddrs, //
    },
    agreement::{
        Agreement,
        Grant, //
    },
    fence::{
        Fences,
        Place, //
    },
    handshake::ConnectError,
    info,
    io_queues::io_queues,
    outage::FastIoFail,
    permit::Partition,
    policy::Policy,
    settings::Settings,
    DEFAULT_PORT,
    PATHS_MAX, //
};

use crate::client::{
    io::transfer::IoQueue,
    module::ModuleState,
    path::error::PathError,
    session::{
        answer::GivenUp,
        outage::{
            Availability,
            SessionEvents,
            GIVE_UP,
            REOPEN, //
        },
        paths::Paths,
        permit::AdminIds,
        quarantine::Quarantine,
        settings::SharedSettings, //
    },
    sysfs::session::SessionFiles, //
};

/// The parameters of [`Session::open`].
pub struct OpenParam<'a> {
    /// The session's name: 1 to 254 bytes, neither `/` nor `.`.
    pub name: &'a str,
    /// The paths: 1 to 128.
    pub paths: &'a [PathAddrs],
    /// The server's port; 0 is the default, 1234.
    pub port: u16,
    /// The number of IO queues, each of which is a connection of each path; `None`: one for each
    /// online CPU, within `proto::io_queues`.
    pub io_queues: Option<u32>,
    /// Connections whose completions are polled for, besides those.
    pub poll_queues: u32,
    /// Time limits; they can be changed later.
    pub settings: Settings,
    /// Called for events of the session.
    pub events: Arc<dyn SessionEvents>,
}

/// The values on which the session and its server have agreed.
struct Agreed {
    agreement: Agreement,
    /// The reason why the path that was checked last was refused, if it was.
    refusal: Option<ConnectError>,
}

/// The memory of a CPU of the paths that it has chosen.
#[derive(Default)]
pub(crate) struct Turns {
    /// The place of the route that was chosen last.
    last: Counter,
    /// The place that was compared with it; of min-inflight.
    compared: Counter,
    /// The path on which a request was sent again, for round-robin: its index and 1, or 0.
    pub(crate) again: Counter,
}

/// A session with a server.
///
/// Between [`Session::open`] and [`Session::close`] it holds its paths and they hold it; the module
/// that opens it must close it.
#[pin_data]
pub struct Session {
    name: CString,
    pub(crate) uuid: [u8; 16],
    port: u16,
    io_queues: u32,
    poll_queues: u32,
    pub(crate) module: Arc<ModuleState>,
    /// A [`Partition`] of the session's chunks: of 0 before the first accept.
    partition: AtomicU32,
    #[pin]
    agreed: Mutex<Agreed>,
    /// Senders read it under RCU.
    pub(crate) paths: RcuArc<Paths>,
    /// The chunks that must not be used yet.
    #[pin]
    pub(crate) quarantine: Quarantine,
    /// The lives of paths of which the server may still execute a request.
    #[pin]
    pub(crate) fences: IrqLock<Fences<KVec<Option<Place>>>>,
    /// The number of requests that wait until one of these is settled.
    pub(crate) fenced_requests: AtomicU32,
    /// Held while the list of paths changes; sleeps.
    #[pin]
    pub(crate) paths_lock: Mutex<()>,
    /// Set under `paths_lock` when the session begins to close: no path is added any more.
    is_closing: AtomicBool,
    /// Held while the routes of `paths` are found.
    #[pin]
    routing: IrqLock<()>,
    turns: PerCpu<Turns>,
    /// A [`Policy`].
    policy: AtomicU8,
    pub(crate) settings: SharedSettings,
    /// Lock order: a path's `attempts`, then this.
    #[pin]
    pub(crate) availability: Mutex<Availability>,
    open: AtomicBool,
    born: Instant<Monotonic>,
    #[pin]
    pub(crate) reopen: DelayedWork<Session, REOPEN>,
    #[pin]
    pub(crate) give_up: DelayedWork<Session, GIVE_UP>,
    pub(crate) admin_ids: Arc<AdminIds>,
    #[pin]
    given_up: GivenUp,
    #[pin]
    pub(crate) files: Mutex<Option<SessionFiles>>,
}

impl Session {
    /// Opens a session: connects all its paths, one after the other. From then on a path that is
    /// lost reconnects by itself. Calls `begun` before it waits for a server, with the session, for
    /// [`Self::abort_open`].
    ///
    /// Sleeps, for 30 s at most in each step, and can be killed. Nothing is left on failure.
    ///
    /// # Errors
    ///
    /// - `EINVAL` for an invalid name or number of paths or queues,
    /// - `EEXIST` for a name that is in use,
    /// - the error of the first path that fails: `ECONNRESET`, `EHOSTUNREACH`, `ETIMEDOUT`,
    ///   `EINTR`, or the server's error,
    /// - `ENODEV` or `ECONNABORTED` if it is aborted.
    pub fn open(param: OpenParam<'_>, begun: impl FnOnce(&Arc<Self>)) -> Result<Arc<Self>> {
        if let Err(e) = info::check_name(param.name.as_bytes()) {
            pr_err!("cannot open a session: {e}\n");
            return Err(EINVAL);
        }
        if param.paths.is_empty() || param.paths.len() > PATHS_MAX {
            return Err(EINVAL);
        }
        if let Some(twice) = addr::repeated(param.paths) {
            let (name, dst) = (param.name, twice.dst);
            pr_err!("session {name}: the path to {dst} exists, it was named twice\n");
            return Err(EEXIST);
        }
        let session = Self::new(&param)?;
        let module = session.module.clone();
        module.enter(&session)?;
        begun(&session);
        if let Err(e) = session.connect_all(param.paths) {
            session.close();
            return Err(e);
        }
        session.settle();
        session.open.store(true, Ordering::Release);
        session.start_events(param.events);
        Ok(session)
    }

    /// Fails an [`Self::open`] that has begun in another task: it does not wait for a server any
    /// more. If it has succeeded already, the session loses its paths for good. Sleeps.
    pub fn abort_open(&self) {
        self.begin_close();
    }

    fn new(param: &OpenParam<'_>) -> Result<Arc<Self>> {
        let module = ModuleState::get()?;
        let io_queues = io_queues(param.io_queues, param.poll_queues, num_online_cpus());
        let io_queues = io_queues.map_err(|e| {
            pr_err!("session {}: {e}\n", param.name);
            EINVAL
        })?;
        let mut uuid = [0; 16];
        random::fill(&mut uuid);
        let name = CString::try_from_fmt(fmt!("{}", param.name))?;
        let turns = PerCpu::new()?;
        let given_up = KVec::from_elem(None, PATHS_MAX, GFP_KERNEL)?;
        let admin_ids = Arc::pin_init(AdminIds::new(), GFP_KERNEL)?;
        let messages_given_up = GivenUp::new()?;
        let port = match param.port {
            0 => DEFAULT_PORT,
            port => port,
        };
        Arc::pin_init(
            pin_init!(Self {
                name,
                uuid,
                port,
                io_queues,
                poll_queues: param.poll_queues,
                module,
                partition: AtomicU32::new(Partition::new(0).to_word()),
                agreed <- new_mutex!(Agreed {
                    agreement: Agreement::Nothing,
                    refusal: None,
                }),
                paths: RcuArc::new(None),
                quarantine <- Quarantine::new(),
                fences <- new_irq_lock!(Fences::new(given_up)),
                fenced_requests: AtomicU32::new(0),
                paths_lock <- new_mutex!(()),
                is_closing: AtomicBool::new(false),
                routing <- new_irq_lock!(()),
                turns,
                policy: AtomicU8::new(Policy::default() as u8),
                settings: SharedSettings::new(&param.settings),
                availability <- new_mutex!(Availability::new()),
                open: AtomicBool::new(false),
                born: Instant::now(),
                reopen <- new_delayed_work!("Session::reopen"),
                give_up <- new_delayed_work!("Session::give_up"),
                admin_ids,
                given_up <- messages_given_up,
                files <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
    }

    fn connect_all(self: &Arc<Self>, all: &[PathAddrs]) -> Result {
        for (index, addrs) in all.iter().enumerate() {
            self.connect_new(*addrs, index == 0)?;
        }
        let files = SessionFiles::new(self)?;
        *self.files.lock() = Some(files);
        Ok(())
    }

    /// Returns the open session of this name, if there is one.
    pub fn find(name: &str) -> Option<Arc<Self>> {
        let session = ModuleState::get().ok()?.find(name)?;
        session.open.load(Ordering::Acquire).then_some(session)
    }

    /// Closes the session: every request in flight ends, with `ECONNABORTED` if need be, and its
    /// connections and its files are removed. Sleeps; a second call waits for the first.
    pub fn close(self: &Arc<Self>) {
        self.open.store(false, Ordering::Release);
        self.stop_events();
        // Before the files, whose removal waits for the tasks that wait in them for a path.
        self.begin_close();
        // Before the paths go: no task uses them through the files any more.
        let files = self.files.lock().take();
        drop(files);
        if let Some(paths) = self.paths.get() {
            for path in &paths.all {
                path.remove();
            }
        }
        let lock = self.paths_lock.lock();
        drop(self.paths.replace(None));
        drop(lock);
        self.module.leave(self);
    }

    /// Returns whether the session is open. Any context.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Returns whether the session is being closed: no path connects any more. Any context.
    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Returns the milliseconds since the session was created.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(0)
    }

    /// Returns the session's name.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Returns the number of chunks that the server keeps for the session.
    pub fn queue_depth(&self) -> u16 {
        self.partition().queue_depth()
    }

    /// Returns how the chunks are divided between IO and admin messages.
    #[inline]
    pub(crate) fn partition(&self) -> Partition {
        Partition::from_word(self.partition.load(Ordering::Relaxed))
    }

    /// Returns the chunk id of the IO with this tag; `None` if there are not that many.
    #[inline(always)]
    pub(crate) fn io_id(&self, tag: u16) -> Option<u16> {
        self.partition().io_id(tag.into())
    }

    /// Returns the number of IO requests that may be in flight; their tags are below this.
    pub fn io_depth(&self) -> u16 {
        self.partition().io_depth()
    }

    /// Returns the most bytes of data of one request.
    pub fn max_io_size(&self) -> u32 {
        let grant = self.agreed.lock().agreement.grant();
        grant.map_or(0, |grant| grant.max_io_size)
    }

    /// Returns the most pieces of data of one request.
    pub fn max_segments(&self) -> u16 {
        let grant = self.agreed.lock().agreement.grant();
        grant.map_or(0, |grant| grant.max_segments)
    }

    /// Returns the number of connections whose completions are polled for.
    pub fn poll_queues(&self) -> u32 {
        self.poll_queues
    }

    /// Returns whether a path is connected right now.
    pub fn is_connected(&self) -> bool {
        self.paths
            .get()
            .is_some_and(|paths| paths.all.iter().any(|p| p.is_connected()))
    }

    /// Returns how long a request may wait for a path, in milliseconds; `None`: for ever.
    pub fn fast_io_fail_ms(&self) -> Option<u64> {
        match self.settings.snapshot().fast_io_fail() {
            FastIoFail::Off => None,
            FastIoFail::After(s) => Some(u64::from(s).saturating_mul(1000)),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of IO queues: connections of each path with completions in softirq,
    /// without the admin connection.
    pub fn io_queues(&self) -> u32 {
        self.io_queues
    }

    /// Returns the number of connections of each path.
    pub(crate) fn connections(&self) -> u16 {
        // CAST: below CONNECTIONS_MAX, as `new` checked.
        (self.io_queues + self.poll_queues) as u16 + 1
    }

    /// Returns the number of the connection of a queue; of one that is not there, if there is no
    /// such poll queue.
    #[inline(always)]
    pub(crate) fn cid_of(&self, io_queue: IoQueue) -> usize {
        let queue = match io_queue {
            IoQueue::Cpu(cpu) if cpu < self.io_queues => cpu,
            IoQueue::Cpu(cpu) => cpu.checked_rem(self.io_queues).unwrap_or(0),
            IoQueue::Poll(queue) => self.io_queues.saturating_add(queue),
        };
        // The first one is that for admin messages. A number of 32 bits.
        (queue as usize).wrapping_add(1)
    }

    /// Returns the CPU that a connection serves; the first two serve the first CPU.
    pub(crate) fn cpu_of(&self, cid: u16) -> u32 {
        let io = u32::from(cid).saturating_sub(1);
        io.checked_rem(self.io_queues).unwrap_or(0)
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy::from_u8(self.policy.load(Ordering::Relaxed)).unwrap_or_default()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
        self.refresh_routes();
    }

    /// Returns the number of chunks that the first accept has granted; `None` before.
    pub(crate) fn depth_agreed(&self) -> Option<u16> {
        match self.queue_depth() {
            0 => None,
            depth => Some(depth),
        }
    }

    /// Adapts the agreement to what a path's server and adapter grant.
    pub(crate) fn agree(&self, grant: Grant) -> Result<(), PathError> {
        let mut agreed = self.agreed.lock();
        let next = agreed.agreement.with(grant).map_err(|refusal| {
            // Logged once for each refusal, however often the path is tried.
            if agreed.refusal.replace(refusal) != Some(refusal) {
                pr_err!("session {}: {refusal}: the path is not used\n", self.name());
            }
            PathError::Response(refusal)
        })?;
        agreed.refusal = None;
        if self.depth_agreed().is_none() {
            self.quarantine
                .provide(grant.queue_depth)
                .map_err(|e| PathError::Resource("state of the chunks", e))?;
        }
        agreed.agreement = next;
        let partition = Partition::new(grant.queue_depth);
        self.partition.store(partition.to_word(), Ordering::Relaxed);
        Ok(())
    }

    /// Fixes the agreement; requests are made for it from now on.
    fn settle(&self) {
        let mut agreed = self.agreed.lock();
        agreed.agreement = agreed.agreement.settled();
    }
}
