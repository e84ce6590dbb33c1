// SPDX-License-Identifier: GPL-2.0

//! The state that all connections of a mount share.

use core::fmt;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    new_wait_queue,
    random,
    ratelimit::RateLimit,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            Ordering, //
        },
        WaitQueue, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};
use net_ext::Namespace;
use vfs_ext::keyring;

use super::{
    stats::Stats,
    user_key::UserKey, //
};
use crate::proto::{
    open_file::Failure,
    options::Options,
    reclaim::CLOSING_MAX,
    retry::Fault,
    setting::Setting, //
};

/// The maximum number of workers for the files of a mount: each waits for a server, or has none to
/// wait for.
const WORKERS_MAX: u16 = 128;

/// The maximum number of workers of a mount that ask other nodes, with any options.
const ASKING_MAX: u32 = 512;

/// The limit of the log lines of all mounts.
pub(super) static LOG: RateLimit = RateLimit::new(5000, 20);

/// Shows in a log line what `core` can show.
pub(super) struct Shown<T>(pub(super) T);

impl<T: fmt::Display> kernel::fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The reason why there is no answer: for the state machines, and for the task that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    pub(super) fault: Fault,
    pub(super) error: Error,
}

impl Trouble {
    /// A server's answer, or what it should have been.
    pub(super) fn of(fault: Fault) -> Self {
        Self {
            fault,
            error: fault.errno().into(),
        }
    }
}

/// An error of a socket.
impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let fault = match error {
            ETIMEDOUT => Fault::TimedOut,
            _ => Fault::Disconnected,
        };
        Self { fault, error }
    }
}

/// Workers of a mount, which have a queue each.
#[derive(Clone, Copy)]
pub(super) enum Workers {
    /// The workers of files.
    Files,
    /// The workers that ask other nodes, as many at a time as requests may be under way.
    Asking,
    /// The workers of files that give their descriptors back.
    Closing,
    /// The closer of descriptors at gfmd.
    Descriptors,
    /// The worker of the connection to gfmd.
    Link,
}

/// The state that all connections of a mount share.
#[pin_data]
pub(super) struct Setup {
    pub(super) namespace: Namespace,
    pub(super) options: Arc<Options>,
    #[pin]
    pub(super) key: UserKey,
    pub(super) stats: Stats,
    /// The begin of the clock.
    born: Instant<Monotonic>,
    /// The number of times that all waits were told to fail.
    interrupts: AtomicU32,
    is_closed: AtomicBool,
    /// Waits that are interrupted.
    #[pin]
    pauses: WaitQueue,
    /// `None` when the mount has ended. The workers run on it, so none of them may own it.
    #[pin]
    queue: SpinLock<Option<Arc<WorkQueue>>>,
    /// The queue of those that ask other nodes, if the mount is a node. A file server is waited for
    /// by others: those who wait for nodes have no place in their queue.
    #[pin]
    ask_queue: SpinLock<Option<Arc<WorkQueue>>>,
    /// The queue of the connection to gfmd. Workers of files wait for its worker, so it needs
    /// neither their places nor their rescuer.
    #[pin]
    link_queue: SpinLock<Option<Arc<WorkQueue>>>,
    /// The queue of files that give their descriptors back. Workers of files wait for them as well.
    #[pin]
    close_queue: SpinLock<Option<Arc<WorkQueue>>>,
    /// The queue of the closer of descriptors at gfmd. All other workers of files wait for it.
    #[pin]
    fd_queue: SpinLock<Option<Arc<WorkQueue>>>,
}

impl Setup {
    /// Begins. Its stack is not below the first connection.
    #[inline(never)]
    pub(super) fn new(
        namespace: Namespace,
        options: Arc<Options>,
        key: Arc<keyring::Key>,
    ) -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = Arc::new(WorkQueue::new(c"gfarm", flags, WORKERS_MAX)?, GFP_KERNEL)?;
        let ask_queue = match options.node() {
            Some(_) => Some(Arc::new(ask_queue(&options)?, GFP_KERNEL)?),
            None => None,
        };
        let close_queue = WorkQueue::new(c"gfarm_close", flags, CLOSING_MAX)?;
        let close_queue = Arc::new(close_queue, GFP_KERNEL)?;
        let fd_queue = Arc::new(WorkQueue::new(c"gfarm_fds", flags, 1)?, GFP_KERNEL)?;
        let link_queue = Arc::new(WorkQueue::new(c"gfarm_gfmd", flags, 1)?, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                namespace,
                options,
                key <- UserKey::new(key),
                stats: Stats::default(),
                born: Instant::now(),
                interrupts: AtomicU32::new(0),
                is_closed: AtomicBool::new(false),
                pauses <- new_wait_queue!("Setup::pauses"),
                queue <- new_spinlock!(Some(queue), "Setup::queue"),
                ask_queue <- new_spinlock!(ask_queue, "Setup::ask_queue"),
                link_queue <- new_spinlock!(Some(link_queue), "Setup::link_queue"),
                close_queue <- new_spinlock!(Some(close_queue), "Setup::close_queue"),
                fd_queue <- new_spinlock!(Some(fd_queue), "Setup::fd_queue"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the time of a monotonic clock, in milliseconds.
    // A subtraction of the kernel crate, which can panic: here, and not in protocol code.
    #[inline(never)]
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(0)
    }

    /// Returns the time of the same clock, in microseconds.
    // As above.
    #[inline(never)]
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos() / 1000).unwrap_or(0)
    }

    /// Returns when a wait of this length that begins now is over.
    pub(super) fn end_ms(&self, timeout_ms: u32) -> u64 {
        self.now_ms().saturating_add(timeout_ms.into())
    }

    /// Returns the milliseconds until then, not 0.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT` if none are left.
    pub(super) fn left_ms(&self, end_ms: u64) -> Result<u32> {
        match end_ms.saturating_sub(self.now_ms()) {
            0 => Err(ETIMEDOUT),
            left_ms => Ok(u32::try_from(left_ms).unwrap_or(u32::MAX)),
        }
    }

    /// Returns a setting of seconds, in milliseconds.
    fn ms(&self, setting: Setting) -> u32 {
        self.options.get(setting).saturating_mul(1000)
    }

    pub(super) fn connect_timeout_ms(&self) -> u32 {
        self.ms(Setting::ConnectTimeout)
    }

    pub(super) fn receive_timeout_ms(&self) -> u32 {
        self.ms(Setting::ReceiveTimeout)
    }

    pub(super) fn reconnect_timeout_ms(&self) -> u32 {
        self.ms(Setting::ReconnectTimeout)
    }

    /// Says that something has failed now.
    pub(super) fn failure(&self, fault: Fault) -> Failure {
        Failure {
            fault,
            now_ms: self.now_ms(),
            timeout_ms: self.reconnect_timeout_ms().into(),
            random: random_number(),
        }
    }

    /// Returns the queue of the workers of files; `None` when the mount has ended.
    pub(super) fn queue(&self) -> Option<Arc<WorkQueue>> {
        self.queue.lock().clone()
    }

    /// Returns whether other nodes are asked before a file server.
    pub(super) fn asks_nodes(&self) -> bool {
        self.options.node().is_some()
    }

    fn queue_of(&self, workers: Workers) -> &SpinLock<Option<Arc<WorkQueue>>> {
        match workers {
            Workers::Files => &self.queue,
            Workers::Asking => &self.ask_queue,
            Workers::Closing => &self.close_queue,
            Workers::Descriptors => &self.fd_queue,
            Workers::Link => &self.link_queue,
        }
    }

    /// Queues work, under the lock of its queue; `None` when the mount has ended. So the end waits
    /// for all work that was queued, and no worker has the last reference to its own queue.
    pub(super) fn on_queue<R>(
        &self,
        workers: Workers,
        enqueue: impl FnOnce(&WorkQueue) -> R,
    ) -> Option<R> {
        let queue = self.queue_of(workers).lock();
        queue.as_ref().map(|queue| enqueue(queue))
    }

    /// Returns how often all that waits was asked to fail: who waits compares.
    pub(super) fn interrupts(&self) -> u32 {
        self.interrupts.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Asks all that waits to fail.
    pub(super) fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::AcqRel);
        self.pauses.wake_all();
    }

    /// Ends the mount's work: what waits fails, and nothing begins. Returns whether it was not
    /// ended before.
    pub(super) fn close(&self) -> bool {
        let is_first = !self.is_closed.swap(true, Ordering::AcqRel);
        self.interrupt();
        is_first
    }

    /// Waits for the work that was queued, and ends the queues: first those who have others work,
    /// and that of gfmd last, for which workers of files wait. Sleeps.
    pub(super) fn end_queues(&self) {
        for workers in [
            Workers::Asking,
            Workers::Files,
            Workers::Closing,
            Workers::Descriptors,
            Workers::Link,
        ] {
            let queue = self.queue_of(workers).lock().take();
            if let Some(queue) = queue {
                queue.flush();
            }
        }
    }

    /// Waits for a time. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `EIO` if waits were interrupted since `interrupts` was read, `ERESTARTSYS` when the
    /// task is killed.
    pub(super) fn pause(&self, pause_ms: u32, interrupts: u32) -> Result {
        let is_over = || self.interrupts() != interrupts;
        match self
            .pauses
            .wait_until_killable_timeout_ms(is_over, pause_ms)
        {
            Err(ETIMEDOUT) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(EIO),
        }
    }
}

/// Makes the queue of the workers that ask other nodes.
fn ask_queue(options: &Options) -> Result<WorkQueue> {
    let asking = options.get(Setting::IbNumSrpc).min(ASKING_MAX);
    let count = u16::try_from(asking).map_err(|_| EINVAL)?;
    WorkQueue::new(c"gfarm_asks", Flags::UNBOUND | Flags::MEM_RECLAIM, count)
}

/// Returns any number.
pub(super) fn random_number() -> u32 {
    let mut bytes = [0; 4];
    random::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}
