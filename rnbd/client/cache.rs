// SPDX-License-Identifier: GPL-2.0

//! The writes of a device that may be lost with the server's volatile cache: the state of
//! [`proto::cache`](crate::proto::cache), shared by all requests.
//!
//! One atomic word. A write's acknowledgement is recorded before its request ends, so a flush that
//! is sent because the write has ended finds it recorded: both change the same word.

use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

use crate::proto::{
    cache::{
        Cache,
        Note,
        Owed, //
    },
    flags::Rw,
};

/// A [`Cache`] that all requests of a device change. Any context.
pub(super) struct CacheCell(AtomicU64);

impl CacheCell {
    /// Returns the state of a device that is not open yet.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(Cache::new().to_word()))
    }

    /// Returns the current state.
    #[inline]
    pub(super) fn get(&self) -> Cache {
        Cache::from_word(self.0.load(Relaxed))
    }

    fn change<R>(&self, step: impl Fn(Cache) -> (Cache, R)) -> R {
        let mut word = self.0.load(Relaxed);
        loop {
            let (next, outcome) = step(Cache::from_word(word));
            let changed = self
                .0
                .compare_exchange_weak(word, next.to_word(), Relaxed, Relaxed);
            match changed {
                Ok(_) => return outcome,
                Err(now) => word = now,
            }
        }
    }

    /// Returns what the acknowledgement of a request for `rw`, which is about to be sent, will
    /// mean, or that the request must fail.
    #[inline]
    pub(super) fn send(&self, rw: &Rw) -> Result<Note, Owed> {
        if Cache::is_flush(rw) {
            self.change(Cache::flush_begins).map(Note::Flush)
        } else {
            Ok(self.get().note_of(rw))
        }
    }

    /// Records that a request was acknowledged; not called for [`Note::Nothing`].
    #[inline]
    pub(super) fn acknowledged(&self, note: Note) {
        // Nearly always a write has been recorded since the last flush.
        let now = self.get();
        if now.acknowledged(note) != now {
            self.change(|cache| (cache.acknowledged(note), ()));
        }
    }

    /// Records that the device was opened; see [`Cache::opened`].
    pub(super) fn opened(&self, restarted: bool, is_volatile: bool) -> bool {
        self.change(|cache| cache.opened(restarted, is_volatile))
    }
}
