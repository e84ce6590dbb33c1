// SPDX-License-Identifier: GPL-2.0

//! A transfer in progress: a queue pair that works on lent memory, and how the memory is returned.

use crate::segments::PAGES_MAX;
use core::mem;
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    errno::ENOTCONN,
    scatterlist::{
        Lender,
        Loan,
        SgBuffer, //
    },
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering, //
    }, //
};
use rdma::{
    sg::{
        self,
        Unmapper, //
    },
    Datagram,
    DatagramPort,
    Device,
    DmaDirection,
    OwnedQp,
    QpHandler,
    WorkCompletion, //
};

/// The time after which a device that has not flushed a queue pair is asked to do so once more.
const AGAIN_TIME: Delta = Delta::from_millis(100);

/// Finishes a transfer, however long the device takes to flush it. Sleeps.
pub(super) fn until_flushed<T, R>(transfer: T, finish: impl Fn(T) -> Result<R, T>) -> R {
    let mut transfer = transfer;
    loop {
        match finish(transfer) {
            Ok(parts) => return parts,
            Err(again) => transfer = again,
        }
        fsleep(AGAIN_TIME);
    }
}

/// Counts the work requests of a transfer that have not completed.
pub(super) struct Pending {
    count: AtomicU32,
    failed: AtomicBool,
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Counts work requests that are about to be posted.
    pub(super) fn add(&self, count: u32) {
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts one that has completed, and whose handler does nothing more. Any context.
    #[inline]
    pub(super) fn completed(&self) {
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Notes that the count is not to be relied on: one has failed, or was not posted. Any context.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Notes a completion that is no success, as [`Self::fail`] does. Returns whether it is news: a
    /// flush is not, as what ended the queue pair has been told. Any context.
    pub(super) fn fails_by(&self, completion: &WorkCompletion) -> bool {
        self.fail();
        let is_flush = completion.status().is_err_and(|status| status.is_flush());
        !is_flush
    }

    /// Returns whether all work requests have completed, without a failure.
    fn is_over(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0 && !self.failed.load(Ordering::Acquire)
    }

    /// Returns whether one has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Begins anew, when there are none.
    fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
    }
}

/// The handler of a queue pair for transfers.
pub(super) trait Counted: QpHandler<Transport = Datagram> {
    /// Returns the count of its work requests: each that is posted is counted before, and taken off
    /// when it has completed; or the count has failed.
    fn pending(&self) -> &Pending;
}

/// A queue pair between two transfers.
///
/// # Invariants
///
/// It has no work request that names memory of a [`Loan`], and `pending` counts none. If it is
/// `dirty`, it is closed.
pub(super) struct Queue<H: Counted> {
    qp: OwnedQp<H>,
    port: DatagramPort,
    /// The index of the partition with which the queue pair was started.
    pkey_index: u16,
    dirty: bool,
    /// The key for which it was made ready ahead.
    prepared: Option<u32>,
    /// [`None`] during a transfer.
    buffer: Option<SgBuffer>,
}

/// A queue in a box, since transfers are passed on by value, in calls that leave little of the
/// stack.
pub(super) type QueueBox<H> = KBox<Queue<H>>;

impl<H: Counted> Queue<H> {
    /// Takes a queue pair that was just created on `port`. Sleeps.
    pub(super) fn new(qp: OwnedQp<H>, port: DatagramPort) -> Result<QueueBox<H>> {
        let buffer = Some(SgBuffer::new(PAGES_MAX)?);
        // INVARIANT: Nothing has been posted.
        let queue = Self {
            qp,
            port,
            pkey_index: port.pkey_index,
            dirty: false,
            prepared: None,
            buffer,
        };
        Ok(KBox::new(queue, GFP_KERNEL)?)
    }

    pub(super) fn qp(&self) -> &OwnedQp<H> {
        &self.qp
    }

    /// Has the next transfer begin on the partition of this index.
    pub(super) fn set_partition(&mut self, pkey_index: u16) {
        self.port.pkey_index = pkey_index;
    }

    fn has_moved(&self) -> bool {
        self.pkey_index != self.port.pkey_index
    }

    /// Makes the queue pair ready for a transfer, under another key. Datagrams with the old one
    /// that come from now on are lost; rxe may put one into a receive that it has looked at before.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`OwnedQp::restart`]: the device did not flush the queue pair, or refuses it.
    pub(super) fn prepare(&mut self, qkey: u32) -> Result {
        let has_key = self.prepared.take() == Some(qkey);
        self.port.qkey = qkey;
        if !self.dirty {
            if self.is_ready() && (has_key || self.qp.set_qkey(qkey).is_ok()) {
                return Ok(());
            }
            // The device has given it up since the last transfer, or the partition is another one,
            // which no other way leads to.
            self.taint()?;
        }
        self.qp.restart(&self.port)?;
        // INVARIANT: It was started just now.
        self.dirty = false;
        self.pkey_index = self.port.pkey_index;
        Ok(())
    }

    /// Does [`prepare`](Self::prepare) ahead of the transfer. One that has to be drained first is
    /// left to that: who waits for it then needs it.
    pub(super) fn prepare_ahead(&mut self, qkey: u32) {
        if self.dirty || self.is_ready() {
            let prepared = self.prepare(qkey);
            self.prepared = prepared.is_ok().then_some(qkey);
        }
    }

    /// Returns the key for which it was made ready ahead.
    pub(super) fn prepared(&self) -> Option<u32> {
        self.prepared
    }

    /// Returns whether a started queue pair needs no restart.
    fn is_ready(&self) -> bool {
        !self.qp.handler().pending().has_failed() && !self.has_moved()
    }

    /// Makes the queue pair ready for a transfer that may use its present key. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`prepare`](Self::prepare).
    pub(super) fn prepare_same(&mut self) -> Result {
        match self.dirty || !self.is_ready() {
            true => self.prepare(self.port.qkey),
            false => Ok(()),
        }
    }

    /// Ends a loan whose list is not mapped.
    pub(super) fn take_back<L: Lender>(&mut self, loan: Loan<L>) -> L {
        let (buffer, lender) = loan.end();
        self.buffer = Some(buffer);
        lender
    }

    /// Has the next transfer begin with a restart, after a failure. Returns an error if the queue
    /// pair could not be drained: it takes no more work requests, so that the transfer does not end
    /// by completions. Sleeps.
    fn taint(&mut self) -> Result {
        let closed = self.qp.close();
        closed.inspect_err(|_| self.qp.handler().pending().fail())?;
        // INVARIANT: It is closed, and so all work requests have completed.
        self.dirty = true;
        self.qp.handler().pending().reset();
        Ok(())
    }
}

/// The parts of a transfer that did not begin, and the reason.
pub struct Refused<Q, L> {
    /// The reason.
    pub error: Error,
    /// The queue pair and the memory.
    pub parts: (Q, L),
}

impl<Q, L> Refused<Q, L> {
    /// Returns the refusal of both.
    pub(super) fn new(error: Error, queue: Q, lender: L) -> Self {
        Self {
            error,
            parts: (queue, lender),
        }
    }

    /// Makes another queue pair of the one that came back.
    pub(super) fn map<R>(self, make: impl FnOnce(Q) -> R) -> Refused<R, L> {
        let (queue, lender) = self.parts;
        Refused::new(self.error, make(queue), lender)
    }
}

/// A queue pair and the memory that its work requests name.
///
/// # Invariants
///
/// Work requests that name memory of the loan are posted on this queue pair only, and are counted
/// by its [`Pending`]. The loan's list is mapped for the device of the queue pair, until all of
/// them have completed.
pub(super) struct ActiveTransfer<H: Counted, L: Lender> {
    /// [`None`] when they have been taken out.
    parts: Option<(QueueBox<H>, Loan<L>)>,
}

impl<H: Counted, L: Lender> ActiveTransfer<H, L> {
    /// Maps the memory for the device, and has `start` prepare or post the work requests. Sleeps.
    pub(super) fn begin<R>(
        mut queue: QueueBox<H>,
        lender: L,
        direction: DmaDirection,
        start: impl FnOnce(&OwnedQp<H>, &Loan<L>) -> Result<R>,
    ) -> Result<(Self, R), Refused<QueueBox<H>, L>> {
        let Some(buffer) = queue.buffer.take() else {
            return Err(Refused::new(EBUSY, queue, lender));
        };
        let mut loan = match Loan::new(buffer, lender) {
            Ok(loan) => loan,
            Err((error, buffer, lender)) => {
                queue.buffer = Some(buffer);
                return Err(Refused::new(error, queue, lender));
            }
        };
        // SAFETY: The loan goes into the value below, which unmaps it before it gives it back, or
        // leaks it; or it is not mapped.
        let list = unsafe { loan.list_mut() };
        if let Err(error) = sg::map(queue.qp.pd().device(), list, direction) {
            let lender = queue.take_back(loan);
            return Err(Refused::new(error, queue, lender));
        }
        // INVARIANT: By those of `Queue`, there is no work request. `start` gets the memory's
        // addresses for this queue pair.
        let this = Self {
            parts: Some((queue, loan)),
        };
        let started = this.parts().and_then(|(qp, loan)| start(qp, loan));
        match started {
            Ok(result) => Ok((this, result)),
            Err(error) => Err(this.refuse(error)),
        }
    }

    /// Ends a transfer that could not begin. Sleeps, while the device neither takes the work
    /// requests nor flushes them: until then it may use the memory.
    fn refuse(self, error: Error) -> Refused<QueueBox<H>, L> {
        let finish = |this: Self| this.finish().map_err(|(_, again)| again);
        let (mut queue, loan) = until_flushed(self, finish);
        let lender = queue.take_back(loan);
        Refused::new(error, queue, lender)
    }

    /// Returns both parts, while the transfer runs.
    pub(super) fn parts(&self) -> Result<(&OwnedQp<H>, &Loan<L>)> {
        let (queue, loan) = self.parts.as_ref().ok_or(ENOTCONN)?;
        Ok((&queue.qp, loan))
    }

    /// Waits until no work request names the memory, and unmaps it. May be called repeatedly.
    /// Sleeps.
    fn settle(&mut self) -> Result {
        let Some((queue, loan)) = &mut self.parts else {
            return Ok(());
        };
        if !queue.qp.handler().pending().is_over() {
            queue.taint()?;
        }
        // SAFETY: The list is unmapped below.
        let list = unsafe { loan.list_mut() };
        sg::unmap(&Over(queue.qp.pd().device()), list);
        Ok(())
    }

    /// Ends the transfer: returns the parts, or the transfer if the device has not flushed it.
    /// Sleeps.
    pub(super) fn finish(mut self) -> Result<(QueueBox<H>, Loan<L>), (Error, Self)> {
        let settled = self.settle();
        // INVARIANT: If it is settled, the list is not mapped, and no work request names it.
        match settled.and_then(|()| self.parts.take().ok_or(ENOTCONN)) {
            Ok(parts) => Ok(parts),
            Err(error) => Err((error, self)),
        }
    }
}

impl<H: Counted, L: Lender> Drop for ActiveTransfer<H, L> {
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            pr_err!("a transfer did not end ({error:?}), its memory is leaked\n");
            if let Some((queue, loan)) = self.parts.take() {
                // The device may still use it.
                mem::forget(loan);
                drop(queue);
            }
        }
    }
}

/// The device of a transfer whose work requests have all completed.
struct Over<'a>(&'a Device);

// SAFETY: `ActiveTransfer::settle` makes one when every work request of the list has completed; no
// region maps it, as only work requests of transfers name it.
unsafe impl Unmapper for Over<'_> {
    fn device(&self) -> &Device {
        self.0
    }
}
