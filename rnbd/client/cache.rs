// SPDX-License-Identifier: GPL-2.0

//! What the server's volatile cache may lose of a device's writes: the state of
//! [`proto::cache`](crate::proto::cache) as requests change it.
//!
//! One atomic word. A write's acknowledgement is noted before its request ends, so who sends a
//! flush because the write has ended finds it noted: both change the same word.

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
    /// Of a device that is not open yet.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(Cache::new().to_word()))
    }

    /// The state at this moment.
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

    /// A request that does `rw` is about to be sent: what its acknowledgement will mean, or that it
    /// is to fail.
    #[inline]
    pub(super) fn send(&self, rw: &Rw) -> Result<Note, Owed> {
        if Cache::is_flush(rw) {
            self.change(Cache::flush_begins).map(Note::Flush)
        } else {
            Ok(self.get().note_of(rw))
        }
    }

    /// A request was acknowledged; not called for those without a meaning.
    #[inline]
    pub(super) fn acknowledged(&self, note: Note) {
        // Nearly always a write has been noted since the last flush.
        let now = self.get();
        if now.acknowledged(note) != now {
            self.change(|cache| (cache.acknowledged(note), ()));
        }
    }

    /// The device was opened; see [`Cache::opened`].
    pub(super) fn opened(&self, restarted: bool, is_volatile: bool) -> bool {
        self.change(|cache| cache.opened(restarted, is_volatile))
    }
}
