// SPDX-License-Identifier: GPL-2.0

//! The chunks that must not be used yet, because a request in them was lost.
//!
//! `proto::quarantine` decides; this file has the lock and what the IO path reads.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
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
use rtrs_core::proto::{
    quarantine::{
        self,
        Place,
        Ticket, //
    },
    shortage::{
        self,
        Shortage, //
    },
};

use crate::client::{
    path::{
        error::PathError,
        Path, //
    },
    session::{
        paths::Paths,
        Session, //
    },
};

/// The bit of [`Quarantine::held`] that says that requests are paused.
const PAUSED: u32 = 1 << 31;

type Chunks = quarantine::Quarantine<KVVec<quarantine::Chunk>>;

/// The state that the lock guards.
struct State {
    chunks: Chunks,
    shortage: Shortage,
    /// No path connects before this time, by the session's clock.
    away_until_ms: u64,
    /// Requests are paused, as far as was looked at.
    is_paused: bool,
}

/// The chunks of a session that are held, each until the server is known to be done with what was
/// lost in it.
#[pin_data]
pub(crate) struct Quarantine {
    /// The number of chunks that are held, and whether requests are paused; most often 0. The only
    /// word that each request reads.
    held: AtomicU32,
    /// Requests may be paused until this time, by the session's clock.
    paused_until_ms: AtomicU64,
    /// One bit for each chunk: it may be held, or must be taken all the same. Written with the lock
    /// of `state` held.
    bits: SetOnce<KVVec<AtomicU64>>,
    #[pin]
    state: IrqLock<State>,
}

impl Quarantine {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            held: AtomicU32::new(0),
            paused_until_ms: AtomicU64::new(0),
            bits: SetOnce::new(),
            state <- new_irq_lock!(State {
                chunks: quarantine::Quarantine::new(KVVec::new()),
                shortage: Shortage::NONE,
                away_until_ms: 0,
                is_paused: false,
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

    /// Returns whether each request may use the chunk of its tag, now. Any context.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Returns whether any chunk is held. Any context.
    #[inline(always)]
    pub(crate) fn is_any_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) & !PAUSED != 0
    }

    /// Returns whether a chunk must be taken, as it may be held. Any context.
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
            if state.chunks.must_take(chunk) {
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
        let held = state.chunks.held();
        if held == 0 {
            state.shortage.end();
        }
        self.show_held(state);
    }

    fn show_held(&self, state: &State) {
        let paused = if state.is_paused { PAUSED } else { 0 };
        let held = state.chunks.held() | paused;
        self.held.store(held, Ordering::Relaxed);
    }

    /// Changes all chunks and publishes their state, with the lock of a piece at a time: at most
    /// once for each connect of a path.
    fn change_all(&self, depth: u16, change: impl Fn(&mut Chunks, Range<u16>)) {
        for piece in quarantine::pieces(depth) {
            let mut state = self.state.lock();
            change(&mut state.chunks, piece.clone());
            for chunk in piece {
                self.show(&mut state, chunk);
            }
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

    /// Takes an id for an admin message; `false` if it is held. Any context.
    pub(crate) fn take_admin_id(&self, id: u16) -> bool {
        if self.is_idle() || !self.may_hold(id) {
            return true;
        }
        let mut state = self.state.lock();
        let is_taken = state.chunks.take(id, None).is_some();
        self.show(&mut state, id);
        is_taken
    }

    /// See [`quarantine::Quarantine::look`]. Any context.
    fn look(&self, chunk: u16, is_in_flight: bool) -> bool {
        if !is_in_flight && !self.may_hold(chunk) {
            return false;
        }
        let mut state = self.state.lock();
        let is_unanswered = state.chunks.look(chunk, is_in_flight);
        self.show(&mut state, chunk);
        is_unanswered
    }

    /// See [`quarantine::Quarantine::may_take`]. Any context.
    fn may_take(&self, own: u16, ticket: Option<Ticket>, now_ms: u64) -> bool {
        if ticket.is_none() && !self.may_hold(own) {
            return true;
        }
        let mut state = self.state.lock();
        let may_take = state.chunks.may_take(own, ticket);
        if !may_take {
            state.shortage.refused(now_ms);
        }
        may_take
    }

    /// See [`quarantine::Quarantine::may_be_executed`]. Any context.
    fn may_be_executed(&self, ticket: Ticket, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        let may_be_executed = state.chunks.may_be_executed(ticket);
        if may_be_executed {
            state.shortage.refused(now_ms);
        }
        may_be_executed
    }

    /// See [`quarantine::Quarantine::pause`]. Any context; before the request is requeued.
    #[cold]
    fn pause(&self, ticket: Ticket, until_ms: u64) -> Ticket {
        let mut state = self.state.lock();
        let paused = state.chunks.pause(ticket, until_ms);
        state.is_paused = true;
        self.paused_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        self.show_held(&state);
        paused
    }

    /// Looks whether requests are paused still. Any context.
    #[cold]
    pub(crate) fn end_pause(&self, now_ms: u64) {
        if now_ms < self.paused_until_ms.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if state.is_paused {
            state.is_paused = state.chunks.is_any_paused(now_ms);
            self.show_held(&state);
        }
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

    /// Pauses a request that was lost, before it is requeued: [`Self::submit`] refuses it for
    /// `pause_ms`. Any context.
    ///
    /// [`Self::submit`]: Session::submit
    pub fn pause(&self, ticket: Ticket, pause_ms: u32) -> Ticket {
        let until_ms = self.now_ms().saturating_add(pause_ms.into());
        self.quarantine.pause(ticket, until_ms)
    }

    /// Returns whether a request is paused. Any context.
    pub fn is_paused(&self, ticket: Ticket) -> bool {
        ticket.is_paused(self.now_ms())
    }

    /// Returns whether [`Self::submit`] would refuse the request with this tag, as it is paused or
    /// its chunk is held: its data need not be prepared. Any context.
    ///
    /// [`Self::submit`]: Session::submit
    #[inline(always)]
    pub fn must_wait(&self, tag: u16, ticket: impl FnOnce() -> Option<Ticket>) -> bool {
        !self.quarantine.is_idle() && self.is_refused(tag, ticket())
    }

    /// Returns whether the server may still execute a copy of the request that was lost: until it
    /// does not, the request has not ended for who has made it. Any context.
    #[cold]
    pub fn may_be_executed(&self, ticket: Option<Ticket>) -> bool {
        ticket.is_some_and(|ticket| self.quarantine.may_be_executed(ticket, self.now_ms()))
    }

    #[cold]
    #[inline(never)]
    fn is_refused(&self, tag: u16, ticket: Option<Ticket>) -> bool {
        let now_ms = self.now_ms();
        self.quarantine.end_pause(now_ms);
        let is_paused = ticket.is_some_and(|ticket| ticket.is_paused(now_ms));
        let is_held = |id| !self.quarantine.may_take(id, ticket, now_ms);
        is_paused || self.io_id(tag).is_some_and(is_held)
    }

    /// Records that the upper layer does not open a device before the server has nothing that was
    /// lost. If that takes too long the session is begun anew.
    pub fn wait_for_lost(&self) {
        let now_ms = self.now_ms();
        let mut state = self.quarantine.state.lock();
        // Read under the lock: the last chunk may have been released since the caller looked.
        let held = state.chunks.held();
        state.shortage.needed(now_ms, held);
    }

    /// Releases the chunks of a path that has reconnected: the server has drained its last life.
    pub(crate) fn end_quarantine_of(&self, path: &Path) {
        if self.quarantine.is_any_held() {
            let number = path.number.get();
            self.quarantine
                .change_all(self.queue_depth(), |chunks, piece| {
                    chunks.connected_in(number, piece);
                });
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
        self.quarantine
            .change_all(self.queue_depth(), |chunks, piece| {
                chunks.forgotten_in(losses, piece);
            });
        self.admin_ids.notify();
    }

    /// Returns the milliseconds for which no path connects, so that the server forgets the session.
    pub(crate) fn away_ms(&self) -> u32 {
        let until_ms = self.quarantine.state.lock().away_until_ms;
        // CAST: at most what `shortage::away_ms` returns.
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
            let guard = rcu::read_lock();
            let connections = path.connections.read(&guard);
            connections.map_or(0, |t| t.requests.unanswered())
        };
        // A path that waits for the answer to a fence message has given its connections away.
        let fenced = self.fenced_requests.load(Ordering::Relaxed);
        let in_flight = paths
            .all
            .iter()
            .map(in_flight)
            .fold(fenced, u32::saturating_add);
        let now_ms = self.now_ms();
        self.look_at_requests(&paths, fenced, now_ms);
        let setting = self.settings.snapshot().fast_io_fail();
        let is_connecting = paths.all.iter().any(|path| path.state().is_connecting());
        let mut state = self.quarantine.state.lock();
        if !state.shortage.is_too_long(now_ms, setting, in_flight) {
            return;
        }
        let away_ms = shortage::away_ms(is_connecting);
        state.away_until_ms = now_ms.saturating_add(away_ms.into());
        let held = state.chunks.held();
        drop(state);
        pr_info!(
            "session {}: requests wait for {held} chunks of lost ones, asking the server anew\n",
            self.name()
        );
        for path in &paths.all {
            // Does nothing for a path that is not connected, nor being connected.
            path.abandon(PathError::ChunksHeld);
        }
    }

    /// Looks which requests have had no answer since the last look, if it is time; the `fenced`
    /// ones are waited for anyway.
    fn look_at_requests(&self, paths: &Paths, fenced: u32, now_ms: u64) {
        let Some(look) = self.quarantine.state.lock().shortage.look(now_ms) else {
            return;
        };
        let mut is_any_unanswered = fenced != 0;
        for chunk in 0..self.queue_depth() {
            let guard = rcu::read_lock();
            let is_armed = |path: &Arc<Path>| {
                let connections = path.connections.read(&guard);
                let entry = connections.and_then(|t| t.requests.entries.get(usize::from(chunk)));
                entry.is_some_and(|entry| entry.is_armed())
            };
            let is_in_flight = paths.all.iter().any(is_armed);
            drop(guard);
            is_any_unanswered |= self.quarantine.look(chunk, is_in_flight);
        }
        let mut state = self.quarantine.state.lock();
        state.shortage.looked(look, is_any_unanswered);
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
