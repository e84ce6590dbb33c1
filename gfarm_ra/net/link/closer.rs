// SPDX-License-Identifier: GPL-2.0

//! Closes descriptors, several by one question. Also sends what no task sends: what those have left
//! that were killed while they sent a question, and what waited for the connection. The worker that
//! receives may not wait for gfmd to take bytes, which may wait for its own to be taken.
//!
//! A descriptor counts among those of the mount until gfmd has answered: others wait for its place.

use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};

use super::Link;
use crate::{
    net::{
        call::{
            Answered,
            Call, //
        },
        descriptors::Lease,
        setup::Workers, //
    },
    proto::{
        closing::{
            Fds,
            DELAY_MS,
            FDS_MAX,
            WAITING_MAX, //
        },
        gfm::Fd,
        question::Kind, //
    }, //
};

/// The number of the work item.
pub(super) const ID: u64 = 1;

/// Prepares the question, with room for the maximum of descriptors.
pub(super) fn call() -> Result<Arc<Call>> {
    let mut fds = Fds::NONE;
    while fds.push(Fd::new(0).ok_or(EINVAL)?) {}
    Call::new(Kind::Close(fds), KVec::new())
}

/// A descriptor that is to be closed, with its process and its right to be there.
pub(super) struct Closing {
    fd: Fd,
    epoch: u32,
    lease: Lease,
}

/// Descriptors of one process that one question closes.
struct Batch {
    fds: Fds,
    epoch: u32,
    leases: [Option<Lease>; FDS_MAX],
}

impl WorkItem<ID> for Link {
    type Pointer = Arc<Link>;

    /// Runs in a worker of its own, which may wait: workers of files wait for it.
    fn run(this: Arc<Link>) {
        if this.is_behind() {
            // A worker is not killed.
            let _ = this.send_waiting();
            // Those that have asked do not receive, but wait.
            this.kick();
        }
        while let Some(waiting) = this.closes() {
            let interrupts = this.setup.interrupts();
            if waiting < FDS_MAX && !this.descriptors.is_full() {
                // An interruption ends the pause only: the descriptors are closed all the same.
                let _ = this.setup.pause(DELAY_MS, interrupts);
            }
            let batch = this.take_closes();
            // A task that opens a file anew may go on.
            this.changed.wake_all();
            if !batch.fds.is_empty() {
                this.close(&batch);
            }
            // They are closed, or their process is gone.
            drop(batch);
        }
    }
}

/// Implements the closing of descriptors.
impl Link {
    /// Queues a descriptor of the process `epoch` to be closed, if that process is still there, and
    /// does not wait for it. Without a `lease` it counts beside the limit of the mount until it is
    /// closed.
    pub(in crate::net) fn close_fd(self: &Arc<Self>, fd: Fd, epoch: u32, lease: Option<Lease>) {
        let mut lease = lease.unwrap_or_else(|| self.descriptors.exceed());
        // Before it leaves the caller: a task that waits sees it at each moment.
        lease.begin_closing();
        let closing = Closing { fd, epoch, lease };
        let mut state = self.state.lock();
        if state.machine.ready() != Some(epoch) || self.setup.is_closed() {
            drop(state);
            // The end of the connection has closed it.
            drop(closing);
            return;
        }
        let rejected = state.closes.push(closing);
        drop(state);
        if rejected.is_err() {
            // So many are not open at a gfmd that does as it is asked. The end closes all.
            return self.condemn(epoch);
        }
        self.kick_sender();
    }

    /// Queues the worker that sends what is left of questions, and closes descriptors.
    pub(super) fn kick_sender(self: &Arc<Self>) {
        // It may be queued already.
        self.setup.on_queue(Workers::Descriptors, |queue| {
            drop(queue.enqueue::<_, ID>(self.clone()))
        });
    }

    /// Returns whether something is to be sent: what waits, or what tasks left that were killed.
    fn is_behind(&self) -> bool {
        let state = self.state.lock();
        state.conversation.is_behind(state.queue.len())
    }

    /// Lets the worker that closes descriptors send what waits.
    pub(super) fn have_sent(self: &Arc<Self>) {
        self.kick_sender();
        // It may wait for room in the queue.
        self.changed.wake_all();
    }

    /// Waits until few descriptors are to be closed, or gfmd is not there. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// `EIO` if waits are interrupted, `ERESTARTSYS` when the task is killed.
    pub(in crate::net) fn await_closes(&self, interrupts: u32) -> Result {
        self.changed.wait_until_killable(|| {
            let state = self.state.lock();
            state.closes.len() < WAITING_MAX
                || state.machine.ready().is_none()
                || self.setup.interrupts() != interrupts
        })?;
        match self.setup.interrupts() == interrupts {
            true => Ok(()),
            false => Err(EIO),
        }
    }

    /// Returns how many descriptors are to be closed; `None` if there are none.
    fn closes(&self) -> Option<usize> {
        let waiting = self.state.lock().closes.len();
        (waiting != 0).then_some(waiting)
    }

    /// Takes descriptors of the process that is there.
    fn take_closes(&self) -> Batch {
        let mut batch = Batch {
            fds: Fds::NONE,
            epoch: 0,
            leases: [const { None }; FDS_MAX],
        };
        for place in &mut batch.leases {
            let Some(next) = self.next_close() else {
                break;
            };
            if next.epoch != batch.epoch {
                // The process of those before has ended meanwhile.
                (batch.fds, batch.epoch) = (Fds::NONE, next.epoch);
            }
            // There is room.
            let _ = batch.fds.push(next.fd);
            *place = Some(next.lease);
        }
        batch
    }

    /// Takes a descriptor of the process that is there. Those of others are closed, so their rights
    /// end.
    fn next_close(&self) -> Option<Closing> {
        loop {
            let (next, now) = {
                let mut state = self.state.lock();
                (state.closes.pop()?, state.machine.ready())
            };
            if now == Some(next.epoch) && !self.setup.is_closed() {
                return Some(next);
            }
        }
    }

    /// Has gfmd close descriptors, and waits for its answer, or the end of their process. gfmd does
    /// not look at those behind one that it refuses, so it is asked again about them. Sleeps.
    fn close(self: &Arc<Self>, batch: &Batch) {
        let mut fds = batch.fds;
        while !fds.is_empty() {
            fds = self.close_some(fds, batch.epoch);
        }
    }

    /// Asks once, and returns those that may be open still: fewer. Sleeps.
    fn close_some(self: &Arc<Self>, fds: Fds, epoch: u32) -> Fds {
        let call = &self.closing;
        if call.begin(Kind::Close(fds), self.setup.now_us()).is_err() {
            call.finish(Answered::MOOT);
            self.condemn(epoch);
            return Fds::NONE;
        }
        call.abandon();
        if !self.push_close(epoch) {
            call.finish(Answered::MOOT);
            return Fds::NONE;
        }
        // A worker is not killed.
        let _ = self.send_waiting();
        self.kick();
        let _ = call.wait();
        let left = call.left_open();
        if left == fds {
            // It would refuse them again. The end of the process closes all.
            self.condemn(epoch);
            return Fds::NONE;
        }
        left
    }

    /// Adds the question to the queue when there is room, and returns whether it has done so: not
    /// if the process is gone, as another one has other descriptors of these numbers.
    fn push_close(self: &Arc<Self>, epoch: u32) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.machine.ready() != Some(epoch) || self.setup.is_closed() {
                return false;
            }
            if state.queue.push(self.closing.clone()).is_ok() {
                return true;
            }
            drop(state);
            // Tasks that were killed may have left what fills the queue, and this is the worker
            // that sends it. A worker is not killed.
            let _ = self.send_waiting();
            self.kick();
            let _ = self.changed.wait_until_killable(|| {
                let state = self.state.lock();
                !state.queue.is_full()
                    || state.machine.ready() != Some(epoch)
                    || state.conversation.is_behind(state.queue.len())
            });
        }
    }
}
