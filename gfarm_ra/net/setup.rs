// SPDX-License-Identifier: GPL-2.0

//! What all connections of a mount share.

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
    errno::ESHUTDOWN,
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

use super::stats::Stats;
use crate::proto::{
    key::SharedKey,
    open_file::Failure,
    options::Options,
    retry::Fault,
    setting::Setting, //
};

/// The maximum number of workers for the files of a mount: each waits for a server, or has none to
/// wait for.
const WORKERS_MAX: u16 = 128;

/// The limit of the log lines of all mounts.
pub(super) static LOG: RateLimit = RateLimit::new(5000, 20);

/// Shows in a log line what `core` can show.
pub(super) struct Shown<T>(pub(super) T);

impl<T: fmt::Display> kernel::fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Why there is no answer: for the state machines, and for the task that waits.
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

/// The key of a mount, which is wiped at its end.
pub(super) struct Key(pub(super) SharedKey);

impl Drop for Key {
    fn drop(&mut self) {
        keyring::wipe(&mut self.0.secret);
    }
}

/// What all connections of a mount share.
#[pin_data]
pub(super) struct Setup {
    pub(super) namespace: Namespace,
    pub(super) options: Arc<Options>,
    pub(super) key: Key,
    pub(super) stats: Stats,
    /// The begin of the clock.
    born: Instant<Monotonic>,
    /// How often all that waits was asked to fail.
    interrupts: AtomicU32,
    is_closed: AtomicBool,
    /// Waits that are interrupted.
    #[pin]
    pauses: WaitQueue,
    /// `None` when the mount has ended. The workers run on it, so none of them may own it.
    #[pin]
    queue: SpinLock<Option<Arc<WorkQueue>>>,
    /// That of the connection to gfmd. Workers of files wait for its worker, so it needs neither
    /// their places nor their rescuer.
    #[pin]
    link_queue: SpinLock<Option<Arc<WorkQueue>>>,
}

impl Setup {
    /// Begins. Its stack is not below the first connection.
    #[inline(never)]
    pub(super) fn new(
        namespace: Namespace,
        options: Arc<Options>,
        key: &SharedKey,
    ) -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = Arc::new(WorkQueue::new(c"gfarm", flags, WORKERS_MAX)?, GFP_KERNEL)?;
        let link_queue = Arc::new(WorkQueue::new(c"gfarm_gfmd", flags, 1)?, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                namespace,
                options,
                key: Key(*key),
                stats: Stats::default(),
                born: Instant::now(),
                interrupts: AtomicU32::new(0),
                is_closed: AtomicBool::new(false),
                pauses <- new_wait_queue!("Setup::pauses"),
                queue <- new_spinlock!(Some(queue), "Setup::queue"),
                link_queue <- new_spinlock!(Some(link_queue), "Setup::link_queue"),
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

    /// Returns the queue of the worker of the connection to gfmd; `None` when the mount has ended.
    pub(super) fn link_queue(&self) -> Option<Arc<WorkQueue>> {
        self.link_queue.lock().clone()
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

    /// Waits for the work that was queued, and ends the queues: that of gfmd last, for which
    /// workers of files wait. Sleeps.
    pub(super) fn end_queues(&self) {
        for queue in [&self.queue, &self.link_queue] {
            let queue = queue.lock().take();
            // A worker that has taken a reference to the queue gives it back before it ends.
            if let Some(queue) = queue {
                queue.flush();
            }
        }
    }

    /// Waits for a time. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ESHUTDOWN` if waits were interrupted since `interrupts` was read, `ERESTARTSYS`
    /// when the task is killed.
    pub(super) fn pause(&self, pause_ms: u32, interrupts: u32) -> Result {
        let is_over = || self.interrupts() != interrupts;
        match self
            .pauses
            .wait_until_killable_timeout_ms(is_over, pause_ms)
        {
            Err(ETIMEDOUT) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(ESHUTDOWN),
        }
    }
}

/// Returns any number.
pub(super) fn random_number() -> u32 {
    let mut bytes = [0; 4];
    random::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}
