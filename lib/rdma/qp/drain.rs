// SPDX-License-Identifier: GPL-2.0

//! The drain of a queue pair.
//!
//! The last work request of each queue is posted when nothing else is posted any more: its posters
//! are closed. A device completes the work requests of a queue in order, and the completions of one
//! completion queue are handled one after the other; so when those two have completed, all others
//! have, and their handlers have returned.
//!
//! `ib_drain_qp()` does the same, but
//!
//! - drains one queue pair after the other,
//! - does not tell its caller when the device refuses the last work request, as a full queue does,
//! - polls a completion queue without interrupts beside its other users, so that handlers of one
//!   queue run on two CPUs, and sleeps a tenth of a second before it does.

pub(crate) mod by_driver;

use crate::{
    address_handle::retirement::Sender,
    cq::{
        Cq,
        PollContext, //
    },
    memory::pd::Pd,
    sys, //
};
use core::{
    cell::UnsafeCell,
    ffi::c_int,
    mem::MaybeUninit, //
};
use kernel::{
    error::to_result,
    prelude::*,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicI32,
    AtomicUsize,
    Ordering, //
};

/// The time in which a device must have flushed a queue pair, in milliseconds.
const FLUSH_MS: i64 = 30_000;

/// The time that it gets for the rest when a drain that failed is tried again, in milliseconds.
const FLUSH_AGAIN_MS: i64 = 1_000;

/// The time for which another context may poll a completion queue of [`PollContext::Direct`]
/// without a break, in milliseconds. A longer poll is one that waits for the drain itself: a
/// handler has dropped its own queue pair.
const POLL_MS: i64 = 2_000;

/// The number of looks at a queue that is polled before the context sleeps for longer.
const LOOKS: u32 = 20;

/// The time between two looks.
const LOOK_TIME: Delta = Delta::from_micros(30);

/// The time between two looks when the device is slow, in milliseconds.
const SLOW_LOOK_MS: u32 = 2;

/// Posts the last work request of a queue.
type PostLast =
    unsafe extern "C" fn(*mut sys::ib_qp, *mut sys::rdma_helper_drain, *mut sys::ib_ah) -> c_int;

const OPEN: i32 = 0;
const DRAINING: i32 = 1;
const DRAINED: i32 = 2;
/// A drain by the driver, which has no limit; else as `DRAINING`.
const BY_DRIVER: i32 = 3;
/// A drain by the driver that takes longer than [`FLUSH_MS`]; else as `BY_DRIVER`.
const BY_DRIVER_FOR_LONG: i32 = 4;

/// The state of the drain of one queue pair, and its last work requests.
///
/// # Invariants
///
/// - `state` is one of the constants above, or the negative errno of a drain that failed. It is
///   `DRAINED` only when the queue pair has no work request and no handler runs, and then until the
///   owner of the queue pair starts it again.
/// - Only the thread that changed `state` to `DRAINING` uses `steps_done`, `sends` and `receives`,
///   besides the completion handlers of what it posts, until it leaves the drain to the driver.
pub(super) struct Drain {
    state: AtomicI32,
    /// The number of [`STEPS`] that have succeeded.
    steps_done: AtomicUsize,
    sends: UnsafeCell<MaybeUninit<sys::rdma_helper_drain>>,
    receives: UnsafeCell<MaybeUninit<sys::rdma_helper_drain>>,
}

// SAFETY: The type has no tie to a thread.
unsafe impl Send for Drain {}
// SAFETY: By the type invariants, one thread uses the cells.
unsafe impl Sync for Drain {}

/// A queue pair that is being drained.
///
/// # Invariants
///
/// `raw` is a queue pair to which nothing else posts, that has room for one more work request in
/// each queue or will have it when it is flushed, and whose queues are `send_cq` and `receive_cq`.
/// If it sends datagrams, `ah` is an address handle of its domain. It and `drain` are pinned, and
/// are destroyed only after a drain that succeeded.
#[derive(Clone, Copy)]
pub(super) struct Draining<'a> {
    pub(super) raw: *mut sys::ib_qp,
    pub(super) send_cq: &'a Cq,
    pub(super) receive_cq: &'a Cq,
    pub(super) pd: &'a Pd,
    pub(super) drain: &'a Drain,
    /// The address handle for the last send of a datagram queue pair; else null.
    pub(super) ah: *mut sys::ib_ah,
    /// The counts of its sends, if these are datagrams.
    pub(super) sender: Option<&'a Sender>,
    /// The time that the device has for each step, of all queue pairs that are drained together.
    pub(super) limit_ms: i64,
}

/// The steps of a drain. A drain that failed is tried again from the step that failed.
///
/// One queue after the other: the handlers of receives have returned when the sends are waited for.
const STEPS: [fn(&Draining<'_>) -> Result; 5] = [
    |qp| qp.flush(),
    |qp| qp.post_last_receive(),
    |qp| qp.await_receives(),
    |qp| qp.post_last_send(),
    |qp| qp.await_sends(),
];

impl Drain {
    /// Returns the state of a queue pair that is in use.
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicI32::new(OPEN),
            steps_done: AtomicUsize::new(0),
            sends: UnsafeCell::new(MaybeUninit::uninit()),
            receives: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Makes the caller the one that drains the queue pair, and returns the time that the device
    /// has for each step; [`None`] if another thread drains it, or has drained it.
    fn begin(&self) -> Option<i64> {
        let before = self.state.load(Ordering::Relaxed);
        if before > OPEN {
            return None;
        }
        self.state
            .compare_exchange(before, DRAINING, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(match before {
            OPEN => FLUSH_MS,
            _ => FLUSH_AGAIN_MS,
        })
    }

    /// Leaves the drain that this thread has begun to the driver.
    fn leave_to_driver(&self) {
        self.state.store(BY_DRIVER, Ordering::Release);
    }

    /// Waits for the context that drains, and returns whether the queue pair is drained;
    /// `ETIMEDOUT` if its driver is not done in time, of which a part is over since `begun`.
    fn result(&self, begun: Instant<Monotonic>) -> Result {
        for look in 0u32.. {
            let state = self.state.load(Ordering::Acquire);
            let limit_ms = match state {
                DRAINED => return Ok(()),
                OPEN | DRAINING => i64::MAX,
                BY_DRIVER => FLUSH_MS,
                BY_DRIVER_FOR_LONG => FLUSH_AGAIN_MS,
                errno => return Err(Error::from_errno(errno)),
            };
            if begun.elapsed().as_millis() > limit_ms {
                // Fails if the driver is done by now, or if it is that state already.
                let _ = self.state.compare_exchange(
                    BY_DRIVER,
                    BY_DRIVER_FOR_LONG,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                break;
            }
            if look < LOOKS {
                fsleep(LOOK_TIME);
            } else {
                fsleep(Delta::from_millis(SLOW_LOOK_MS.into()));
            }
        }
        Err(ETIMEDOUT)
    }

    /// Begins anew, for a queue pair that is drained and has been started again. Called by its
    /// owner, when no other thread uses it.
    pub(super) fn renew(&self) {
        self.steps_done.store(0, Ordering::Relaxed);
        self.state.store(OPEN, Ordering::Release);
    }

    fn end(&self, done: Result) {
        let state = done.map_or_else(Error::to_errno, |()| DRAINED);
        self.state.store(state, Ordering::Release);
    }
}

/// Drains queue pairs concurrently: all enter the error state before the first is waited for.
/// Sleeps. The drain of each fails or succeeds on its own: see [`results`].
pub(super) fn drain(all: &mut [Option<Draining<'_>>]) {
    for entry in all.iter_mut() {
        // What another thread drains, or has drained, is left to it.
        *entry = entry.and_then(|qp| {
            let limit_ms = qp.drain.begin()?;
            Some(Draining { limit_ms, ..qp })
        });
    }
    for (number, step) in STEPS.iter().enumerate() {
        let begun = Instant::<Monotonic>::now();
        for entry in all.iter_mut() {
            let Some(qp) = entry else { continue };
            // The device has the time for all: one that hangs is found after it, not after a
            // multiple.
            let left_ms = qp
                .limit_ms
                .saturating_sub(begun.elapsed().as_millis())
                .max(0);
            let qp = Draining {
                limit_ms: left_ms,
                ..*qp
            };
            if let Err(error) = qp.step(number, step) {
                match error != ETIMEDOUT && qp.has_driver() {
                    true => by_driver::start(&qp, error),
                    false => qp.end(Err(error)),
                }
                *entry = None;
            }
        }
    }
    for qp in all.iter().flatten() {
        qp.end(Ok(()));
    }
}

/// Waits for the contexts that drain the queue pairs, and returns the error of one that is not
/// drained. Sleeps.
pub(super) fn results(all: &[Option<Draining<'_>>]) -> Result {
    // Drivers have the time for all as well.
    let begun = Instant::now();
    let mut done = Ok(());
    for qp in all.iter().flatten() {
        done = done.and(qp.drain.result(begun));
    }
    done
}

impl Draining<'_> {
    /// Runs step `number`, unless it has succeeded before.
    fn step(&self, number: usize, step: &fn(&Draining<'_>) -> Result) -> Result {
        if self.drain.steps_done.load(Ordering::Relaxed) > number {
            return Ok(());
        }
        step(self)?;
        let done = number.wrapping_add(1);
        self.drain.steps_done.store(done, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the drain that this thread has begun.
    fn end(&self, done: Result) {
        if done.is_ok() {
            // Once for each start of the queue pair, since only a restart changes the state.
            self.pd.queue_pair_drained();
            if let Some(sender) = self.sender {
                sender.settle();
            }
        }
        self.drain.end(done);
    }

    fn flush(&self) -> Result {
        // SAFETY: By the type invariants, the queue pair is valid.
        to_result(unsafe { sys::rdma_helper_flush(self.raw) })
    }

    fn post_last_receive(&self) -> Result {
        let last = self.drain.receives.get().cast();
        self.post(sys::rdma_helper_post_last_recv, last, self.receive_cq)
    }

    fn post_last_send(&self) -> Result {
        let last = self.drain.sends.get().cast();
        self.post(sys::rdma_helper_post_last_send, last, self.send_cq)
    }

    fn await_receives(&self) -> Result {
        self.await_last(self.drain.receives.get().cast(), self.receive_cq)
    }

    fn await_sends(&self) -> Result {
        self.await_last(self.drain.sends.get().cast(), self.send_cq)
    }

    /// Posts the last work request of a queue. While the queue is full this waits: the device is
    /// flushing it, and each completion that is handled frees an entry.
    fn post(&self, post: PostLast, last: *mut sys::rdma_helper_drain, cq: &Cq) -> Result {
        let begun = Instant::<Monotonic>::now();
        loop {
            // SAFETY: By the invariants of `Drain`, this thread uses `last` alone, which stays
            // where it is until the queue pair is destroyed. By the type invariants, the queue
            // pair is valid.
            let code = unsafe { post(self.raw, last, self.ah) };
            if code != ENOMEM.to_errno() || begun.elapsed().as_millis() > self.limit_ms {
                return to_result(code);
            }
            cq.poll(u32::MAX);
            fsleep(LOOK_TIME);
        }
    }

    /// Returns whether the driver has functions that drain the queue pair.
    fn has_driver(&self) -> bool {
        // SAFETY: By the type invariants, the queue pair is valid.
        unsafe { sys::rdma_helper_has_drain(self.raw) }
    }

    /// Drains the queue pair, of which the device has refused work with `error`, by the functions
    /// of its driver. Sleeps without a limit.
    fn end_by_driver(&self, error: Error) -> Result {
        let claimed = self.claim_queues(|| {
            // SAFETY: By the type invariants, the queue pair is valid and nothing else is posted.
            // The function may poll the completion queues, which are claimed.
            unsafe { sys::rdma_helper_drain_by_driver(self.raw) };
        });
        claimed.ok_or(error)
    }

    /// Calls `with` while no other context polls the completion queues; [`None`] if one goes on.
    fn claim_queues(&self, with: impl FnOnce()) -> Option<()> {
        let _sends = self.send_cq.claim(POLL_MS)?;
        if core::ptr::eq(self.send_cq, self.receive_cq) {
            with();
            return Some(());
        }
        let _receives = self.receive_cq.claim(POLL_MS)?;
        with();
        Some(())
    }

    /// Waits until the last work request of a queue, whose completions go to `cq`, has completed.
    fn await_last(&self, last: *mut sys::rdma_helper_drain, cq: &Cq) -> Result {
        let is_over = |ms: u32| {
            // SAFETY: `post` initialised `last`, which lives as long as the queue pair.
            unsafe { sys::rdma_helper_await_last(last, ms) }
        };
        if cq.context() != PollContext::Direct {
            // CAST: a constant above.
            return is_over(self.limit_ms as u32).then_some(()).ok_or(ETIMEDOUT);
        }
        let begun = Instant::<Monotonic>::now();
        let mut polled = begun;
        for look in 0u32.. {
            if let Some(claim) = cq.claim(0) {
                claim.process();
                polled = Instant::now();
            }
            let ms = if look < LOOKS { 0 } else { SLOW_LOOK_MS };
            if is_over(ms) {
                return Ok(());
            }
            if polled.elapsed().as_millis() > POLL_MS || begun.elapsed().as_millis() > self.limit_ms
            {
                break;
            }
            if ms == 0 {
                // Usually the device has flushed all requests by then.
                fsleep(LOOK_TIME);
            }
        }
        Err(ETIMEDOUT)
    }
}
