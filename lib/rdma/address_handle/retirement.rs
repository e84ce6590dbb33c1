// SPDX-License-Identifier: GPL-2.0

//! Handles that were dropped, until no send uses them.

use super::RawHandle;
use crate::{
    memory::pd::Pd,
    proto::retirement::{
        self,
        Bunch,
        Posted,
        Retired,
        SendQueue,
        Watched, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU64,
    Ordering, //
};

/// The sends of a queue pair for datagrams, as its posts and its completions count them.
pub(crate) struct SendCounts {
    begun: AtomicU64,
    succeeded: AtomicU64,
    has_quiet: AtomicBool,
}

impl SendCounts {
    const fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            has_quiet: AtomicBool::new(false),
        }
    }

    /// Counts what is about to be posted. Any context that is a poster of the queue pair.
    #[inline(always)]
    pub(crate) fn begin(&self, posted: Posted) {
        if posted.is_quiet() {
            self.has_quiet.store(true, Ordering::Relaxed);
        }
        self.begun
            .fetch_add(posted.signaled().into(), Ordering::Relaxed);
    }

    /// Takes back what was counted: the driver has posted nothing of it. Any context.
    #[cold]
    pub(crate) fn refused(&self, posted: Posted) {
        self.begun
            .fetch_sub(posted.signaled().into(), Ordering::Relaxed);
    }

    /// Counts a signaled send that has succeeded. Any context.
    #[inline(always)]
    pub(crate) fn succeeded(&self) {
        // Behind what the device has done with the handle.
        self.succeeded.fetch_add(1, Ordering::Release);
    }
}

impl SendQueue for Arc<SendCounts> {
    // What was posted before a handle was dropped is seen: who posts borrows the handle.
    fn sends(&self) -> retirement::Sends {
        retirement::Sends {
            succeeded: self.succeeded.load(Ordering::Acquire),
            begun: self.begun.load(Ordering::Relaxed),
            has_quiet: self.has_quiet.load(Ordering::Relaxed),
        }
    }
}

/// A handle, and the next one of its bunch.
pub(super) struct Node {
    pub(super) raw: RawHandle,
    next: Option<KBox<Node>>,
}

impl Node {
    /// Allocates a node, so that its handle can be retired without a failure. Sleeps.
    pub(super) fn new(raw: RawHandle) -> Result<KBox<Self>> {
        Ok(KBox::new(Self { raw, next: None }, GFP_KERNEL)?)
    }
}

/// Handles that were dropped. Dropping them destroys them, and sleeps.
#[derive(Default)]
struct Dropped {
    first: Option<KBox<Node>>,
    len: usize,
}

impl Dropped {
    const fn new() -> Self {
        Self {
            first: None,
            len: 0,
        }
    }

    fn push(&mut self, mut node: KBox<Node>) {
        node.next = self.first.take();
        self.first = Some(node);
        self.len = self.len.saturating_add(1);
    }
}

impl Bunch for Dropped {
    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        // One after the other, as the stack has no room for all.
        while let Some(mut node) = self.first.take() {
            self.first = node.next.take();
        }
    }
}

/// The handles of a domain that were dropped, and the queue pairs that may use them.
#[pin_data]
pub(crate) struct Handles {
    #[pin]
    inner: Mutex<Inner>,
}

/// # Invariants
///
/// - `queues` has all queue pairs of the domain that send datagrams and are not destroyed.
/// - `retired` has handles that no send names which is not posted yet. It is empty while there are
///   no queue pairs, but for a thread that is about to empty it.
struct Inner {
    retired: Retired<Dropped>,
    queues: KVec<Watched<Arc<SendCounts>>>,
}

impl Handles {
    /// Returns those of a domain without queue pairs.
    pub(crate) fn new() -> impl PinInit<Self> {
        let retired = Retired::new(Dropped::new(), Dropped::new());
        // INVARIANT: There are neither.
        let inner = Inner {
            retired,
            queues: KVec::new(),
        };
        pin_init!(Self { inner <- new_mutex!(inner, "Handles::inner") })
    }

    /// Destroys what no send uses any more. Sleeps.
    pub(super) fn reclaim(&self) {
        loop {
            let mut inner = self.inner.lock();
            let Inner { retired, queues } = &mut *inner;
            let free = retired.take(queues);
            drop(inner);
            if free.is_empty() {
                return;
            }
        }
    }

    /// Destroys what no send uses any more. Returns `EAGAIN` if too many handles are left that
    /// sends may use. Sleeps.
    pub(super) fn make_room(&self) -> Result {
        self.reclaim();
        match self.inner.lock().retired.is_full() {
            true => Err(EAGAIN),
            false => Ok(()),
        }
    }

    /// Takes a handle that was dropped. Sleeps.
    pub(super) fn retire(&self, node: KBox<Node>) {
        // INVARIANT: Who posts borrows the handle, of which no owner is left.
        self.inner.lock().retired.fresh().push(node);
        self.reclaim();
    }

    /// Returns the number of handles that were dropped and are not destroyed yet. Destroys those
    /// first that no send uses any more. Sleeps.
    pub(crate) fn waiting(&self) -> usize {
        self.reclaim();
        self.inner.lock().retired.len()
    }

    fn add_queue(&self, counts: Arc<SendCounts>) -> Result {
        let queues = &mut self.inner.lock().queues;
        Ok(queues.push(Watched::new(counts), GFP_KERNEL)?)
    }

    fn remove_queue(&self, counts: &Arc<SendCounts>) {
        {
            let queues = &mut self.inner.lock().queues;
            queues.retain(|watched| !Arc::ptr_eq(watched.queue(), counts));
        }
        self.reclaim();
    }

    /// Takes note that a queue pair is drained: all it has posted is over.
    fn settle(&self, counts: &Arc<SendCounts>) {
        // The lock is that of all who look.
        let inner = self.inner.lock();
        let settled = counts.sends().settled();
        counts.has_quiet.store(settled.has_quiet, Ordering::Relaxed);
        counts.begun.store(settled.begun, Ordering::Relaxed);
        counts.succeeded.store(settled.succeeded, Ordering::Release);
        drop(inner);
        self.reclaim();
    }
}

/// A queue pair that sends datagrams, as long as it exists.
pub(crate) struct Sender {
    pd: Arc<Pd>,
    counts: Arc<SendCounts>,
}

impl Sender {
    /// Adds a queue pair of `pd` that is about to be created. Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<Self> {
        let counts = Arc::new(SendCounts::new(), GFP_KERNEL)?;
        pd.handles().add_queue(counts.clone())?;
        Ok(Self {
            pd: pd.clone(),
            counts,
        })
    }

    /// Returns its counts.
    #[inline(always)]
    pub(crate) fn counts(&self) -> &SendCounts {
        &self.counts
    }

    /// Takes note that it is drained, and has not been started again: no handler runs, nothing is
    /// posted, and nothing on its way. Sleeps.
    pub(crate) fn settle(&self) {
        self.pd.handles().settle(&self.counts);
    }
}

impl Drop for Sender {
    // The queue pair was destroyed, or has never been created.
    fn drop(&mut self) {
        self.pd.handles().remove_queue(&self.counts);
    }
}
