// SPDX-License-Identifier: GPL-2.0

//! The chunks that must not be used yet, because a request in them was lost.
//!
//! `proto::quarantine` decides; this file has the lock and what the IO path reads.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel_ext::{
    new_irq_lock,
    sync::{
        IrqLock,
        SetOnce, //
    },
};
use rtrs_core::proto::quarantine::{
    self,
    Place,
    Shortage,
    Ticket, //
};

use crate::client::{
    path::{
        error::PathError,
        Path, //
    },
    session::Session, //
};

/// The state that the lock guards.
struct State {
    chunks: quarantine::Quarantine<KVVec<quarantine::Chunk>>,
    shortage: Shortage,
    /// No path connects before this time, by the session's clock.
    away_until_ms: u64,
}

/// The chunks of a session that are held, each until the server is known to be done with what was
/// lost in it.
#[pin_data]
pub(crate) struct Quarantine {
    /// The number of chunks that are held, most often 0; the only word that each request reads.
    held: AtomicU32,
    /// One bit for each chunk: it may be held. Written with the lock of `state` held.
    bits: SetOnce<KVVec<AtomicU64>>,
    #[pin]
    state: IrqLock<State>,
}

impl Quarantine {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            held: AtomicU32::new(0),
            bits: SetOnce::new(),
            state <- new_irq_lock!(State {
                chunks: quarantine::Quarantine::new(KVVec::new()),
                shortage: Shortage::NONE,
                away_until_ms: 0,
            }),
        })
    }

    /// Allocates what `depth` chunks need; sleeps. Called once, before the first request.
    pub(crate) fn provide(&self, depth: u16) -> Result {
        let mut bits = KVVec::with_capacity(usize::from(depth / 64) + 1, GFP_KERNEL)?;
        for _ in 0..=depth / 64 {
            bits.push(AtomicU64::new(0), GFP_KERNEL)?;
        }
        let mut chunks = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
        for _ in 0..depth {
            chunks.push(quarantine::Chunk::default(), GFP_KERNEL)?;
        }
        self.bits.populate(bits);
        // Freed here, without the lock.
        let unused = self.state.lock().chunks.provide(chunks);
        drop(unused);
        Ok(())
    }

    /// Returns the word and the mask of a chunk's bit.
    #[inline(always)]
    fn bit(&self, chunk: u16) -> Option<(&AtomicU64, u64)> {
        let word = self.bits.as_ref()?.get(usize::from(chunk / 64))?;
        Some((word, 1u64.wrapping_shl(u32::from(chunk % 64))))
    }

    /// Returns whether any chunk is held. Any context.
    #[inline(always)]
    pub(crate) fn is_any_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a chunk may be held. Any context.
    ///
    /// The bit of a lost request is set before its tag or id is free, so the next request with that
    /// tag or id sees it. A bit that was just cleared may still be seen as set.
    pub(crate) fn may_hold(&self, chunk: u16) -> bool {
        self.bit(chunk)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Publishes the state of a chunk to the IO path.
    fn show(&self, state: &mut State, chunk: u16) {
        if let Some((word, bit)) = self.bit(chunk) {
            if state.chunks.is_held(chunk) {
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
        let held = state.chunks.held();
        if held == 0 {
            state.shortage.end();
        }
        self.held.store(held, Ordering::Relaxed);
    }

    /// Publishes the state of all chunks; at most once for each connect of a path.
    fn show_all(&self, state: &mut State, depth: u16) {
        for chunk in 0..depth {
            self.show(state, chunk);
        }
    }

    /// See [`quarantine::Quarantine::lost`]. Any context.
    pub(crate) fn lost(&self, chunk: u16, path: u8) -> Ticket {
        let mut state = self.state.lock();
        let ticket = state.chunks.lost(chunk, path);
        self.show(&mut state, chunk);
        ticket
    }

    /// See [`quarantine::Quarantine::take`]. Any context.
    #[cold]
    pub(crate) fn take(&self, own: u16, ticket: Option<Ticket>, now_ms: u64) -> Option<Place> {
        let mut state = self.state.lock();
        let taken = state.chunks.take(own, ticket);
        match taken {
            Some(place) => self.show(&mut state, place.chunk),
            None => state.shortage.refused(now_ms),
        }
        taken
    }

    /// Records that a message needs an id that is held.
    #[cold]
    pub(crate) fn refused(&self, now_ms: u64) {
        self.state.lock().shortage.refused(now_ms);
    }

    /// See [`quarantine::Quarantine::given_back`]. Any context.
    #[cold]
    pub(crate) fn given_back(&self, chunk: u16) {
        let mut state = self.state.lock();
        state.chunks.given_back(chunk);
        self.show(&mut state, chunk);
    }

    /// Records that a request was answered that was lost before. Any context; before its tag is
    /// free.
    #[cold]
    pub(crate) fn answered(&self, chunk: u16) {
        let mut state = self.state.lock();
        state.chunks.answered(chunk);
        self.show(&mut state, chunk);
    }

    /// See [`quarantine::Quarantine::add_path`].
    pub(crate) fn add_path(&self) -> Result<u8> {
        self.state.lock().chunks.add_path().ok_or(ENOSPC)
    }

    /// See [`quarantine::Quarantine::remove_path`].
    pub(crate) fn remove_path(&self, path: u8) {
        self.state.lock().chunks.remove_path(path);
    }

    /// See [`quarantine::Quarantine::inquiry`].
    pub(crate) fn inquiry(&self, path: u8, was_up: bool) -> Option<u64> {
        if !self.is_any_held() {
            return None;
        }
        self.state.lock().chunks.inquiry(path, was_up)
    }

    /// See [`quarantine::Quarantine::used_instead_of`]. Any context.
    pub(crate) fn used_instead_of(&self, own: u16) -> Option<u16> {
        if !self.is_any_held() {
            return None;
        }
        self.state.lock().chunks.used_instead_of(own)
    }
}

impl Session {
    /// Returns whether the server may still have, or get, a request or message that was lost.
    pub fn is_any_lost(&self) -> bool {
        self.quarantine.is_any_held()
    }

    /// Records that the upper layer waits until the server has nothing that was lost. If that takes
    /// too long the session is begun anew.
    pub fn wait_for_lost(&self) {
        self.quarantine.refused(self.now_ms());
    }

    /// Releases the chunks of a path that has reconnected: the server has drained its last life.
    pub(crate) fn end_quarantine_of(&self, path: &Path) {
        if self.quarantine.is_any_held() {
            let mut state = self.quarantine.state.lock();
            state.chunks.connected(path.number.get());
            self.quarantine.show_all(&mut state, self.queue_depth());
            drop(state);
            self.admin_ids.notify();
        }
    }

    /// Releases all chunks: the server does not know the session. `losses` is what
    /// [`Quarantine::inquiry`] returned before the server was asked.
    pub(crate) fn end_quarantine(&self, losses: u64) {
        pr_info!(
            "session {}: the server has forgotten it, its chunks can be used\n",
            self.name()
        );
        let mut state = self.quarantine.state.lock();
        state.chunks.forgotten(losses);
        self.quarantine.show_all(&mut state, self.queue_depth());
        drop(state);
        self.admin_ids.notify();
    }

    /// Returns the milliseconds for which no path connects, so that the server forgets the session.
    pub(crate) fn away_ms(&self) -> u32 {
        let until_ms = self.quarantine.state.lock().away_until_ms;
        // CAST: at most what `quarantine::away_ms` returns.
        until_ms.saturating_sub(self.now_ms()) as u32
    }

    /// Fails all paths for a moment if requests have waited for held chunks for too long. The
    /// heartbeat of each path that is up calls this.
    pub(crate) fn look_after_chunks(&self) {
        if !self.quarantine.is_any_held() {
            return;
        }
        let Some(paths) = self.paths.get() else {
            return;
        };
        let in_flight = |path: &Arc<Path>| {
            path.connections
                .get()
                .map_or(0, |t| t.requests.inflight.load(Ordering::Relaxed))
        };
        let in_flight = paths.0.iter().map(in_flight).fold(0, u32::saturating_add);
        let setting = self.settings.snapshot().fast_io_fail();
        let is_connecting = paths.0.iter().any(|path| path.state().is_connecting());
        let mut state = self.quarantine.state.lock();
        if !state.shortage.is_too_long(setting, in_flight) {
            return;
        }
        let away_ms = quarantine::away_ms(is_connecting);
        state.away_until_ms = self.now_ms().saturating_add(away_ms.into());
        let held = state.chunks.held();
        drop(state);
        pr_info!(
            "session {}: requests wait for {held} chunks of lost ones, asking the server anew\n",
            self.name()
        );
        for path in &paths.0 {
            // Does nothing for a path that is not connected, nor being connected.
            path.fail(PathError::ChunksHeld);
        }
    }
}

/// The number of a path in its session.
pub(crate) struct Number {
    session: Arc<Session>,
    number: u8,
}

impl Number {
    /// Takes a free number; `ENOSPC`.
    pub(crate) fn new(session: &Arc<Session>) -> Result<Self> {
        Ok(Self {
            session: session.clone(),
            number: session.quarantine.add_path()?,
        })
    }

    pub(crate) fn get(&self) -> u8 {
        self.number
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.session.quarantine.remove_path(self.number);
    }
}
