// SPDX-License-Identifier: GPL-2.0

//! The messages of one connection that have invalidated keys.

use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use rtrs_core::proto::invalidation::{
    Mark,
    Message, //
};

/// The state of `proto::invalidation` for a connection. Only completion handlers of its queue pair
/// change it, one after the other; senders read what it has shown.
pub(crate) struct Invalidations {
    /// A time of the table's clock: the device has executed after it all that is still to come.
    shown: AtomicU64,
    /// The last [`Message`].
    key: AtomicU64,
    after: AtomicU64,
    /// The [`Mark`].
    tick: AtomicU64,
    left: AtomicU32,
}

impl Invalidations {
    pub(crate) fn new() -> Self {
        let ((key, after), (tick, left)) = (Message::NONE.to_words(), Mark::NONE.to_words());
        Self {
            shown: AtomicU64::new(0),
            key: AtomicU64::new(key),
            after: AtomicU64::new(after),
            tick: AtomicU64::new(tick),
            left: AtomicU32::new(left),
        }
    }

    /// Returns the time after which all that is still to come was executed.
    #[inline(always)]
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Notes what the connection has shown.
    #[inline(always)]
    pub(crate) fn show(&self, time: u64) {
        if time > self.shown() {
            self.shown.store(time, Ordering::Relaxed);
        }
    }

    /// Notes a message that has invalidated `key`.
    #[inline(always)]
    pub(crate) fn came(&self, key: u32) {
        let (key, after) = Message::new(key, self.shown()).to_words();
        self.key.store(key, Ordering::Relaxed);
        self.after.store(after, Ordering::Relaxed);
    }

    /// Returns whether the last message has invalidated `key`, all earlier registrations of which
    /// have ended before the time `since`, for a request that was sent at `sent_at`.
    #[inline(always)]
    pub(crate) fn prove(&self, key: u32, since: u64, sent_at: u64) -> bool {
        let words = (
            self.key.load(Ordering::Relaxed),
            self.after.load(Ordering::Relaxed),
        );
        let is_proven = Message::from_words(words).proves(key, since);
        if is_proven {
            self.show(sent_at);
        }
        is_proven
    }

    /// Notes at the time `now` that one of `batches` batches of receives was posted again.
    pub(crate) fn posted(&self, now: u64, batches: u32) {
        let words = (
            self.tick.load(Ordering::Relaxed),
            self.left.load(Ordering::Relaxed),
        );
        let (mark, shown) = Mark::from_words(words).posted(now, batches);
        let (tick, left) = mark.to_words();
        self.tick.store(tick, Ordering::Relaxed);
        self.left.store(left, Ordering::Relaxed);
        if let Some(shown) = shown {
            self.show(shown);
        }
    }
}
