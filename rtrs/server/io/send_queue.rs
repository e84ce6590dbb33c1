// SPDX-License-Identifier: GPL-2.0

//! Room on the send queue of one connection, and the answers that wait for it.

use kernel::prelude::*;
use kernel_ext::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{
        Relaxed,
        SeqCst, //
    },
};
use kernel_ext::{
    new_irq_lock,
    sync::IrqLock, //
};
use rdma::SendFlags;
use rtrs_core::proto::credit::Credit;

use crate::server::io::request::RequestContext;

/// Request contexts in the order in which they were added, linked through
/// [`RequestContext::next`]: any number of them, without an allocation.
pub(crate) struct RequestList {
    /// Newest first.
    pushed: Option<KBox<RequestContext>>,
    /// Oldest first; filled from `pushed` when it is empty.
    sorted: Option<KBox<RequestContext>>,
}

impl RequestList {
    /// Returns an empty list.
    pub(crate) const fn new() -> Self {
        Self {
            pushed: None,
            sorted: None,
        }
    }

    /// Appends `context`.
    pub(crate) fn push(&mut self, mut context: KBox<RequestContext>) {
        context.next = self.pushed.take();
        self.pushed = Some(context);
    }

    /// Takes the context that was added first.
    pub(crate) fn pop(&mut self) -> Option<KBox<RequestContext>> {
        if self.sorted.is_none() {
            while let Some(mut context) = self.pushed.take() {
                self.pushed = context.next.take();
                context.next = self.sorted.take();
                self.sorted = Some(context);
            }
        }
        let mut first = self.sorted.take()?;
        self.sorted = first.next.take();
        Some(first)
    }

    fn is_empty(&self) -> bool {
        self.pushed.is_none() && self.sorted.is_none()
    }
}

impl Drop for RequestList {
    fn drop(&mut self) {
        // One after the other: the default drop recurses.
        while self.pop().is_some() {}
    }
}

/// Room on one send queue, counted in answers, heartbeats included: [`Credit`] decides.
#[pin_data]
pub(crate) struct SendQueue {
    /// Answers so far.
    begun: AtomicU32,
    /// Answers that are known to be done.
    done: AtomicU32,
    credit: Credit,
    /// Whether `waiting` may hold an answer: read before the lock is taken.
    has_waiting: AtomicBool,
    #[pin]
    waiting: IrqLock<RequestList>,
}

impl SendQueue {
    /// Returns a queue with room for `room` answers, of a session with this queue depth.
    pub(crate) fn new(room: u32, queue_depth: u16) -> impl PinInit<Self> {
        pin_init!(Self {
            begun: AtomicU32::new(0),
            done: AtomicU32::new(0),
            credit: Credit::new(room, queue_depth),
            has_waiting: AtomicBool::new(false),
            waiting <- new_irq_lock!(RequestList::new(), "SendQueue::waiting"),
        })
    }

    /// Reserves room for one answer, which must then be posted unless the path has failed; returns
    /// whether it is signaled. `None` if there is no room.
    #[inline(always)]
    pub(crate) fn reserve(&self) -> Option<SendFlags> {
        loop {
            let number = self.begun.load(Relaxed);
            let next = self.credit.reserve(number, self.done.load(SeqCst))?;
            let taken = self
                .begun
                .compare_exchange(number, next.begun, SeqCst, Relaxed);
            if taken.is_ok() {
                return Some(SendFlags::signaled(next.is_signaled));
            }
        }
    }

    /// Counts the answers up to a signaled one as done, whose completion has come.
    #[inline]
    pub(crate) fn completed(&self) {
        self.done.fetch_add(self.credit.interval(), SeqCst);
    }

    /// Queues an answer until there is room for it.
    #[cold]
    pub(crate) fn wait(&self, context: KBox<RequestContext>) {
        let mut waiting = self.waiting.lock();
        waiting.push(context);
        self.has_waiting.store(true, SeqCst);
    }

    /// Returns whether answers wait, as far as can be seen without the lock.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting.load(SeqCst)
    }

    /// Takes the answer that has waited longest, if there is room for it.
    #[cold]
    pub(crate) fn next_with_room(&self) -> Option<(KBox<RequestContext>, SendFlags)> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return None;
        }
        let flags = self.reserve()?;
        Some((self.pop(&mut waiting)?, flags))
    }

    /// Takes the answer that has waited longest, of a path that has failed.
    #[cold]
    pub(crate) fn next_waiting(&self) -> Option<KBox<RequestContext>> {
        self.pop(&mut self.waiting.lock())
    }

    fn pop(&self, waiting: &mut RequestList) -> Option<KBox<RequestContext>> {
        let first = waiting.pop();
        if waiting.is_empty() {
            self.has_waiting.store(false, SeqCst);
        }
        first
    }
}
