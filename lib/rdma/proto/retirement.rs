// SPDX-License-Identifier: GPL-2.0

//! The instant after which objects that sends have used may go: address handles that were dropped.
//!
//! A device completes the sends of a queue pair in the order in which they were posted. Hence a
//! send that was posted before an instant is over when as many signaled sends of its queue pair
//! have succeeded as were posted by then, or one more if some sends have no signaled one behind
//! them. What was dropped at that instant, and used by sends of several queue pairs, waits for each
//! of them.
//!
//! Nothing is noted of a single send, nor of a single object: all that are dropped while others
//! wait are the next to wait, together.

use core::mem;

/// The most objects that may wait when another one is made. Sends that are on their way are over
/// in milliseconds, so that more wait only if a device does not complete them.
pub const WAITING_MAX: usize = 256;

/// The numbers of sends of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    signaled: u32,
    is_quiet: bool,
}

impl Posted {
    /// A post without sends.
    pub const NONE: Self = Self {
        signaled: 0,
        is_quiet: false,
    };

    /// A post of which only the last send is signaled.
    pub const LAST_SIGNALED: Self = Self {
        signaled: 1,
        is_quiet: false,
    };

    /// Returns the post with one more send behind the others.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, is_signaled: bool) -> Self {
        Self {
            // CAST: 0 or 1.
            signaled: self.signaled.wrapping_add(is_signaled as u32),
            is_quiet: !is_signaled,
        }
    }

    /// Returns the number of its signaled sends.
    #[inline(always)]
    pub const fn signaled(self) -> u32 {
        self.signaled
    }

    /// Returns whether no signaled send is behind its last one.
    #[inline(always)]
    pub const fn is_quiet(self) -> bool {
        self.is_quiet
    }
}

/// The sends of a queue pair until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sends {
    /// The signaled sends whose post has begun.
    pub begun: u64,
    /// The signaled sends that have succeeded.
    pub succeeded: u64,
    /// A post was [quiet](Posted::is_quiet).
    pub has_quiet: bool,
}

/// The number of signaled sends of a queue pair that must have succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u64);

impl Sends {
    /// Returns the mark for the sends that are posted now.
    const fn mark(self) -> Mark {
        Mark(self.begun.saturating_add(self.has_quiet as u64))
    }

    /// Returns them when the queue pair is drained. Its last send counts as a signaled one behind
    /// all others, and what is posted next does not have any behind it.
    #[must_use]
    pub const fn settled(self) -> Self {
        let begun = self.begun.saturating_add(1);
        Self {
            begun,
            succeeded: begun,
            has_quiet: false,
        }
    }

    const fn has_passed(self, mark: Mark) -> bool {
        self.succeeded >= mark.0
    }
}

/// A queue pair.
pub trait SendQueue {
    /// Returns what it has sent until now. What was posted before the call counts.
    fn sends(&self) -> Sends;
}

/// A queue pair that may use what is retired.
#[derive(Debug)]
pub struct Watched<Q> {
    queue: Q,
    mark: Mark,
}

impl<Q: SendQueue> Watched<Q> {
    /// Takes a queue pair that was just created: it has used nothing that was dropped before.
    pub const fn new(queue: Q) -> Self {
        Self {
            queue,
            mark: Mark(0),
        }
    }

    /// Returns the queue pair.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }
}

/// Objects that were dropped.
pub trait Bunch: Default {
    /// Returns their number.
    fn len(&self) -> usize;

    /// Returns whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The objects that wait, in two bunches.
#[derive(Debug)]
pub struct Retired<B> {
    /// The objects that were dropped before the marks were set.
    marked: B,
    /// The objects that were dropped since then.
    fresh: B,
}

impl<B: Bunch> Retired<B> {
    /// Makes it of two bunches, both empty.
    pub const fn new(marked: B, fresh: B) -> Self {
        Self { marked, fresh }
    }

    /// Returns the bunch to which an object is added that no send will use that is not posted yet.
    pub const fn fresh(&mut self) -> &mut B {
        &mut self.fresh
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.marked.len().saturating_add(self.fresh.len())
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether so many wait that no other is to be made.
    pub fn is_full(&self) -> bool {
        self.len() >= WAITING_MAX
    }

    /// Takes objects that no send uses any more; none if there are none yet. To be called until it
    /// returns none. `queues` are all queue pairs that may have used one.
    pub fn take<Q: SendQueue>(&mut self, queues: &mut [Watched<Q>]) -> B {
        if self.marked.is_empty() {
            self.marked = mem::take(&mut self.fresh);
            for watched in queues.iter_mut() {
                watched.mark = watched.queue.sends().mark();
            }
        }
        let is_over = |watched: &Watched<Q>| watched.queue.sends().has_passed(watched.mark);
        match queues.iter().all(is_over) {
            true => mem::take(&mut self.marked),
            false => B::default(),
        }
    }
}
