// SPDX-License-Identifier: GPL-2.0

//! Answers that have to wait until the registration before them is posted.
//!
//! A request is armed before its work requests are posted, so a server that lies, or one that
//! answers very soon, may have its answer handled before the sender has returned from the post. An
//! invalidation that is posted then could be ahead of the registration: an adapter that does not
//! check it (that of mlx5, by its driver) would execute it, the memory would be given back, and the
//! registration would make it writable for the server after that.
//!
//! A sender notes which sending it has posted. Where the handler of the answer does not see that
//! the answer is put aside, in the request's own entry, which has room for each one that comes. A
//! work item looks again: most often the note is there by then. Else it waits: a sender sends under
//! RCU, so after a grace period each that was about to post has done so, whether its note is seen
//! or not.

use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel_ext::sync::{
    Handoff,
    Held, //
};

/// The number of the last sending of a request's entry that was posted.
///
/// A sender that is late may note an older one over a newer one: then the newer one is taken for
/// one that is not posted yet.
pub(crate) struct Posted(AtomicU32);

impl Posted {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Notes that the sending of this number is posted. Any context.
    #[inline(always)]
    pub(crate) fn note(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }

    /// Returns whether a sending is known to be posted: what the caller posts now is behind it. Any
    /// context.
    pub(crate) fn has(&self, sending: &Sending) -> bool {
        self.0.load(Ordering::Acquire) == sending.number
    }
}

/// A sending with a key that the server uses.
pub(crate) struct Sending {
    /// Counts those of the entry.
    number: u32,
    /// Its answer was put aside before the grace period that was waited for last.
    is_old: bool,
}

impl Sending {
    /// The value of an entry that was not used yet.
    pub(crate) const NONE: Self = Self {
        number: 0,
        is_old: false,
    };

    /// Begins the next one.
    #[inline(always)]
    pub(crate) fn next(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    /// Returns its number.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// A request with a sending.
pub(crate) trait HasSending {
    /// Returns the last one.
    fn sending(&mut self) -> &mut Sending;
}

/// The decision about an answer that was put aside.
pub(crate) enum Aside<'a, T> {
    /// No answer was put aside.
    None,
    /// The answer stays aside at least for a grace period that begins after this.
    Waits,
    /// Its request is posted: what the caller posts now is behind it.
    Posted(Held<'a, T>),
}

/// Puts an answer aside: [`look`] finds it. Any context.
pub(crate) fn put_aside<T: HasSending>(mut held: Held<'_, T>) {
    held.sending().is_old = false;
    held.put_aside();
}

/// Looks for an answer that was put aside for the request of `entry`.
///
/// One task at a time looks, and waits for a grace period before it looks at an entry again.
pub(crate) fn look<'a, T: HasSending>(entry: &'a Handoff<T>, posted: &Posted) -> Aside<'a, T> {
    let Some(mut held) = entry.claim_aside() else {
        return Aside::None;
    };
    let sending = held.sending();
    if sending.is_old || posted.has(sending) {
        return Aside::Posted(held);
    }
    sending.is_old = true;
    held.put_aside();
    Aside::Waits
}
