// SPDX-License-Identifier: GPL-2.0

//! The requests of a device that wait until its disk takes them.
//!
//! A request is not submitted by the completion handler that brings it if that would have to wait:
//! [`Submission`] has the rules. It goes to a list, without an allocation, and a work item of the
//! device submits it, which may wait, with a new bio. Requests that were not answered yet may pass
//! each other in this way, as they may on their way to the handlers.

use block_ext::{
    bdev::BlockDevice,
    Flags, //
};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    new_irq_lock,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::Relaxed, //
        },
        IrqLock,
        Lent,
        Loans, //
    },
    workqueue::{
        self,
        WorkQueue, //
    },
};
use rtrs_server::{
    Operation,
    OperationQueue, //
};

use super::{
    direction_of,
    plain,
    protection,
    target::Target, //
};
use crate::proto::{
    flags::{
        Op,
        Ops, //
    },
    message::IoRequest,
    submission::Submission, //
};

/// The requests of a device that wait.
///
/// Each keeps the device open, as those in flight do: the mapping waits for them when it closes the
/// device.
#[pin_data]
pub(crate) struct Backlog {
    submission: Submission,
    /// Changes under `loans`.
    has_waiting: AtomicBool,
    /// The protocol version agreed on with the client.
    version: u8,
    queue: Arc<WorkQueue>,
    #[pin]
    waiting: OperationQueue,
    /// A loan for each of those; also held while one is added or taken.
    #[pin]
    loans: IrqLock<Loans<Target>>,
    #[pin]
    work: Work<Backlog>,
}

impl_has_work! {
    impl HasWork<Self> for Backlog { self.work }
}

impl WorkItem for Backlog {
    type Pointer = Arc<Backlog>;

    fn run(backlog: Arc<Backlog>) {
        while let Some((target, operation)) = backlog.next() {
            backlog.submit(target, operation);
        }
    }
}

impl Backlog {
    /// Creates the list of `device`, whose mapping permits `plain` to requests that go straight to
    /// the block layer without protection information; its work item runs on `queue`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        device: &BlockDevice,
        plain: Ops,
        version: u8,
        queue: Arc<WorkQueue>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                submission: Submission::new(device.can_refuse(), plain),
                has_waiting: AtomicBool::new(false),
                version,
                queue,
                waiting <- OperationQueue::new(),
                loans <- new_irq_lock!(Loans::new(), "rnbd_server::Backlog::loans"),
                work <- new_work!("rnbd_server::Backlog::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the operations of plain requests that the handler submits.
    pub(super) fn at_once(&self) -> Ops {
        self.submission.at_once(self.has_waiting.load(Relaxed))
    }

    /// Returns whether the handler submits a request with protection information.
    pub(super) fn is_at_once(&self, op: Op) -> bool {
        self.submission
            .is_at_once(op, self.has_waiting.load(Relaxed))
    }

    /// Returns the flag by which the handler asks the disk to refuse a request, if it can.
    pub(super) fn refusal(&self) -> Flags {
        match self.submission.may_refuse() {
            true => Flags::NOWAIT,
            false => Flags::NONE,
        }
    }

    /// Notes whether requests of `target` wait. Called under `loans`.
    fn set_waiting(&self, target: &Target, has_waiting: bool) {
        if self.has_waiting.load(Relaxed) == has_waiting {
            return;
        }
        self.has_waiting.store(has_waiting, Relaxed);
        target.submit_at_once(self.at_once());
    }

    /// Adds a request that the mapping of `target` permits, and whose protection information, if it
    /// has some, was verified. Any context.
    #[cold]
    pub(super) fn add(target: Lent<Target>, operation: Operation) {
        let backlog = target.backlog().clone();
        let mut loans = backlog.loans.lock();
        backlog.set_waiting(&target, true);
        // A target has a list of its own.
        if let Err(target) = loans.put(target) {
            drop(loans);
            drop(target);
            return operation.reply(Err(EIO));
        }
        backlog.waiting.push(operation);
        // Before the lock is released: the device may be closed when the item has taken the
        // request, and then waits for the item if it is queued.
        let _ = backlog.queue.enqueue::<Arc<Self>, 0>(backlog.clone());
    }

    /// Takes the request that was added first. While the last one is submitted, the handlers try by
    /// themselves again.
    fn next(&self) -> Option<(Lent<Target>, Operation)> {
        let mut loans = self.loans.lock();
        let operation = self.waiting.pop()?;
        let target = loans.take()?;
        if loans.is_empty() {
            self.set_waiting(&target, false);
        }
        Some((target, operation))
    }

    /// Submits a request. Sleeps while the disk takes no more.
    fn submit(&self, target: Lent<Target>, operation: Operation) {
        if let Some(protection) = target.protection().cloned() {
            return protection::submit_in_turn(target, protection, self.version, operation);
        }
        let (user, len) = (operation.user(), operation.data_len());
        match IoRequest::parse(user, len, direction_of(&operation), self.version) {
            Ok(request) => plain::submit_in_turn(target, request, operation),
            // It was parsed before.
            Err(reason) => {
                drop(target);
                operation.reply(Err(reason.errno().into()));
            }
        }
    }

    /// Waits until the work item does not use the device any more, of which no request is left.
    /// Sleeps.
    pub(crate) fn flush(self: &Arc<Self>) {
        let _ = workqueue::flush::<_, 0>(self);
    }
}
