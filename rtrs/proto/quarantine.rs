// SPDX-License-Identifier: GPL-2.0

//! Quarantine of the chunks of requests that were lost on a path, which the server may still
//! execute.
//!
//! The server may still have a request that was lost with its path: in the queue of a disk, for an
//! unbounded time. It then reads the data from the chunk, or writes the data to it. So no other
//! request may use the chunk before the server has ended the lost one. Three events show that:
//!
//! - the *same request*, sent again in the same chunk on another path, is answered: a server that
//!   fences its chunks (decision 0006) answers it after the first copy has ended;
//! - the *path* is connected again: the server sends the info response after the requests of the
//!   previous connect have ended;
//! - the server does not *know the session*: it frees a session when the last of its paths is
//!   drained.
//!
//! The passing of time does not show it.

use core::ops::{
    DerefMut,
    Range, //
};

use super::{
    outage::FastIoFail,
    timeouts::ONE_PATH_ANSWER_MS,
    PATHS_MAX, //
};

/// A set of paths, by their numbers.
type Paths = u128;

const _: () = assert!(PATHS_MAX == Paths::BITS as usize);

const fn bit(path: u8) -> Paths {
    // CAST: `path` is a `u8`. A number beyond the paths is not in a set.
    match 1u128.checked_shl(path as u32) {
        Some(bit) => bit,
        None => 0,
    }
}

/// The state of one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The paths on which a request of this chunk was lost, and whose end at the server is not
    /// known yet.
    paths: Paths,
    /// The number of the last of these losses.
    loss: u64,
    /// The lost request is in flight in this chunk again; the value is the chunk of its current
    /// tag.
    lent_to: Option<u16>,
    /// The chunk that is lent to this one: the other direction of `lent_to`.
    uses: Option<u16>,
    /// A request was in flight here at the last [`look`](Quarantine::look), and no other one has
    /// used the chunk since.
    was_in_flight: bool,
}

impl Chunk {
    fn is_held(&self) -> bool {
        self.paths != 0 || self.lent_to.is_some()
    }
}

/// The proof of a lost request: with it, the unchanged request may be sent again in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    chunk: u16,
    loss: u64,
    /// The request is not sent again before this time.
    paused_until_ms: u64,
}

impl Ticket {
    /// Returns whether the request is not to be sent yet.
    pub const fn is_paused(self, now_ms: u64) -> bool {
        now_ms < self.paused_until_ms
    }
}

/// The chunk of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The chunk that the request uses.
    pub chunk: u16,
    /// The request was lost in this chunk before: [`answered`](Quarantine::answered),
    /// [`lost`](Quarantine::lost) or [`given_back`](Quarantine::given_back) must follow.
    pub is_again: bool,
}

/// The quarantine of a session: its chunks and its paths. `C` is memory with a [`Chunk`] for each
/// chunk.
#[derive(Clone, Debug)]
pub struct Quarantine<C> {
    chunks: C,
    /// The number of losses so far.
    losses: u64,
    /// The number of held chunks.
    held: u32,
    /// The numbers of the existing paths.
    paths: Paths,
    /// Requests may be paused until this time.
    paused_until_ms: u64,
}

impl<C: DerefMut<Target = [Chunk]>> Quarantine<C> {
    /// Creates the quarantine of a session without paths; no chunk is held.
    pub fn new(chunks: C) -> Self {
        Self {
            chunks,
            losses: 0,
            held: 0,
            paths: 0,
            paused_until_ms: 0,
        }
    }

    /// Uses this memory from now on, unless a request was lost already; returns the memory that it
    /// does not use.
    pub fn provide(&mut self, chunks: C) -> C {
        if self.losses != 0 {
            return chunks;
        }
        core::mem::replace(&mut self.chunks, chunks)
    }

    /// Returns the number of held chunks.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns whether no other request may use the chunk.
    pub fn is_held(&self, chunk: u16) -> bool {
        self.chunks
            .get(usize::from(chunk))
            .is_some_and(Chunk::is_held)
    }

    /// Returns whether the next request that uses the chunk has to [`take`](Self::take) it.
    pub fn must_take(&self, chunk: u16) -> bool {
        self.chunks
            .get(usize::from(chunk))
            .is_some_and(|c| c.is_held() || c.was_in_flight)
    }

    /// Notes whether a request is in flight in a chunk now; returns whether the same request was at
    /// the last look and is still. Chunks of which [`Self::must_take`] says so are taken meanwhile.
    pub fn look(&mut self, chunk: u16, is_in_flight: bool) -> bool {
        let Some(chunk) = self.chunks.get_mut(usize::from(chunk)) else {
            return false;
        };
        core::mem::replace(&mut chunk.was_in_flight, is_in_flight) && is_in_flight
    }

    /// Changes a chunk and updates the number of held chunks.
    fn change(&mut self, chunk: u16, change: impl FnOnce(&mut Chunk)) {
        if let Some(chunk) = self.chunks.get_mut(usize::from(chunk)) {
            let before = chunk.is_held();
            change(chunk);
            match (before, chunk.is_held()) {
                (false, true) => self.held = self.held.saturating_add(1),
                (true, false) => self.held = self.held.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn all(&self) -> Range<u16> {
        // There are at most as many.
        0..u16::try_from(self.chunks.len()).unwrap_or(u16::MAX)
    }

    fn change_each(&mut self, chunks: Range<u16>, change: impl Fn(&mut Chunk)) {
        for chunk in chunks {
            self.change(chunk, &change);
        }
    }

    /// Lends a chunk to the request whose tag stands for chunk `own`.
    fn lend(&mut self, chunk: u16, own: u16) {
        self.change(chunk, |c| c.lent_to = Some(own));
        if let Some(own) = self.chunks.get_mut(usize::from(own)) {
            own.uses = Some(chunk);
        }
    }

    /// Ends the use of a chunk by a request that was lost in it.
    fn end_loan(&mut self, chunk: u16) {
        let lent_to = self.chunks.get(usize::from(chunk)).and_then(|c| c.lent_to);
        let own = lent_to.and_then(|own| self.chunks.get_mut(usize::from(own)));
        if let Some(own) = own.filter(|own| own.uses == Some(chunk)) {
            own.uses = None;
        }
        self.change(chunk, |c| c.lent_to = None);
    }

    /// Adds a path and returns its number. Returns `None` if no number is free: a number is not
    /// reused while a chunk is held for it.
    pub fn add_path(&mut self) -> Option<u8> {
        let taken = self.chunks.iter().fold(self.paths, |t, c| t | c.paths);
        // CAST: The value is at most 128.
        let number = taken.trailing_ones() as u8;
        let bit = bit(number);
        self.paths |= bit;
        (bit != 0).then_some(number)
    }

    /// Removes a path. Its end at the server is not known, so its chunks stay held.
    pub fn remove_path(&mut self, path: u8) {
        self.paths &= !bit(path);
    }

    /// Holds the chunk of a request that was not answered before the connections of its path were
    /// drained.
    pub fn lost(&mut self, chunk: u16, path: u8) -> Ticket {
        self.losses = self.losses.saturating_add(1);
        let loss = self.losses;
        self.change(chunk, |c| {
            c.paths |= bit(path);
            c.loss = loss;
        });
        Ticket {
            chunk,
            loss,
            paused_until_ms: 0,
        }
    }

    /// Pauses a lost request: the caller does not send it before `until_ms`. As its chunk may be
    /// free by then, requests show their tickets as long as [`Self::is_any_paused`].
    pub fn pause(&mut self, ticket: Ticket, until_ms: u64) -> Ticket {
        self.paused_until_ms = self.paused_until_ms.max(until_ms);
        Ticket {
            paused_until_ms: until_ms,
            ..ticket
        }
    }

    /// Returns whether a request may be paused.
    pub fn is_any_paused(&self, now_ms: u64) -> bool {
        now_ms < self.paused_until_ms
    }

    /// Returns whether the chunk of this ticket is held for its request, which is not in flight.
    fn waits_for(&self, ticket: Ticket) -> bool {
        let chunk = self.chunks.get(usize::from(ticket.chunk));
        chunk.is_some_and(|c| c.is_held() && c.loss == ticket.loss && c.lent_to.is_none())
    }

    /// Returns whether [`Self::take`] has a chunk for a request.
    pub fn may_take(&self, own: u16, ticket: Option<Ticket>) -> bool {
        ticket.is_some_and(|ticket| self.waits_for(ticket)) || !self.is_held(own)
    }

    /// Chooses the chunk of a request whose tag stands for chunk `own`; returns `None` if it has to
    /// wait. A lost request uses its previous chunk while that is held; in another chunk the server
    /// could execute its first copy after it.
    pub fn take(&mut self, own: u16, ticket: Option<Ticket>) -> Option<Place> {
        if let Some(ticket) = ticket.filter(|ticket| self.waits_for(*ticket)) {
            self.lend(ticket.chunk, own);
            return Some(Place {
                chunk: ticket.chunk,
                is_again: true,
            });
        }
        if self.is_held(own) {
            return None;
        }
        // The previous request in it has ended.
        self.change(own, |c| c.was_in_flight = false);
        Some(Place {
            chunk: own,
            is_again: false,
        })
    }

    /// Handles a request in this chunk that left the driver without an answer: it was not sent, or
    /// was lost and is not sent again by the driver.
    pub fn given_back(&mut self, chunk: u16) {
        self.end_loan(chunk);
    }

    /// Handles the answer to the request in this chunk, on any path: no copy of it is left at the
    /// server.
    pub fn answered(&mut self, chunk: u16) {
        self.end_loan(chunk);
        self.change(chunk, |c| c.paths = 0);
    }

    /// Handles the connect of a path: the requests of its previous connect have ended at the
    /// server.
    pub fn connected(&mut self, path: u8) {
        self.connected_in(path, self.all());
    }

    /// The same for some of the chunks. The caller goes on with the others, [a piece](pieces) at a
    /// time, and the path loses no request meanwhile.
    pub fn connected_in(&mut self, path: u8, chunks: Range<u16>) {
        self.change_each(chunks, |c| c.paths &= !bit(path));
    }

    /// Returns the number of losses before the server is asked for the session, at the start of a
    /// reconnect of a path that `was_up`; [`Self::forgotten`] takes it if the server does not know
    /// the session. Returns `None` if no chunk is held for another path, so that the server need
    /// not be asked: the connect may begin a new session there (`first_conn`).
    pub fn inquiry(&self, path: u8, was_up: bool) -> Option<u64> {
        let others = !bit(path);
        let unseen = self.held != 0 && self.chunks.iter().any(|c| c.paths & others != 0);
        (unseen && was_up).then_some(self.losses)
    }

    /// Handles that the server does not know the session, so all of its paths have ended there;
    /// `losses` is the number when the server was asked. Later losses belong to a new session.
    pub fn forgotten(&mut self, losses: u64) {
        self.forgotten_in(losses, self.all());
    }

    /// The same for some of the chunks; the caller goes on with the others.
    pub fn forgotten_in(&mut self, losses: u64, chunks: Range<u16>) {
        self.change_each(chunks, |c| {
            if c.loss <= losses {
                c.paths = 0;
            }
        });
    }

    /// Returns the chunk of the request whose tag stands for chunk `own`, if it is another one.
    pub fn used_instead_of(&self, own: u16) -> Option<u16> {
        let uses = self.chunks.get(usize::from(own))?.uses;
        uses.filter(|chunk| *chunk != own)
    }
}

/// Chunks that change at a time: as long an interrupt waits for the lock.
const PIECE: u16 = 256;

/// Divides the chunks of a session into pieces.
pub fn pieces(depth: u16) -> impl Iterator<Item = Range<u16>> {
    let firsts = (0..depth).step_by(usize::from(PIECE));
    firsts.map(move |first| first..first.saturating_add(PIECE).min(depth))
}

/// The time that requests wait for held chunks before their session is started again; it grows by
/// half after each unsuccessful try. A connect request that the network delayed can keep a session
/// at the server for 30 s: three tries fall into [`WAIT_MIN_MS`], and the third is more than 30 s
/// after the first.
const PATIENCE_MS: u64 = 10_000;
/// The maximum of this time, after several unsuccessful tries.
const PATIENCE_MAX_MS: u64 = 640_000;
/// The time without a waiting request after which none is assumed to wait.
const LAPSE_MS: u64 = 60_000;
/// The time after which what waits counts more than requests in flight that may fail for it. Some
/// are always in flight on a busy session, and a device that waits would never be opened. A quarter
/// of [`WAIT_MIN_MS`], so that three tries fall into it here as well.
const HOLD_BACK_MS: u64 = WAIT_MIN_MS / 4;
/// The time for which a request may be in flight without an answer before the server is assumed not
/// to end it soon, as when a disk there hangs. The server frees no session before: an outage would
/// last as long as the disk hangs, for all disks. Requests that take less time are drained within
/// an outage of [`AWAY_S`].
const UNANSWERED_MS: u64 = 5000;
/// The maximum time of an outage that a [`Shortage`] starts, in which the server frees the session.
const AWAY_S: u32 = 10;
/// The time without a path in such an outage, in milliseconds.
const AWAY_MS: u32 = 1000;
/// The minimum time that a request waits for a held chunk before it fails.
const WAIT_MIN_MS: u64 = 60_000;

/// Requests that wait for held chunks while a path is connected.
///
/// A path that does not reconnect would hold them without end. A server frees a session without
/// paths: so the client disconnects all paths for a short time, and asks for the session when it
/// connects them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The first and the last time that a request found its chunk held.
    refused_ms: Option<(u64, u64)>,
    /// The time when a device was not opened because of a lost request.
    needed_ms: Option<u64>,
    patience_ms: u64,
    /// The time of the last look at the requests in flight.
    looked_ms: Option<u64>,
    /// A request was in flight at that look and the one before; or there was none before.
    may_hang: bool,
}

/// A look at the requests in flight, which [`Shortage::looked`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the requests are to be looked at"]
pub struct Look {
    is_first: bool,
}

impl Shortage {
    /// No request waits.
    pub const NONE: Self = Self {
        refused_ms: None,
        needed_ms: None,
        patience_ms: PATIENCE_MS,
        looked_ms: None,
        may_hang: true,
    };

    /// Handles a request whose chunk is held; the request asks again repeatedly.
    pub fn refused(&mut self, now_ms: u64) {
        self.refused_ms = match self.refused_ms {
            Some((first_ms, last_ms)) if now_ms.saturating_sub(last_ms) < LAPSE_MS => {
                Some((first_ms, now_ms))
            }
            _ => Some((now_ms, now_ms)),
        };
    }

    /// Handles a device that is not opened before the lost requests have ended. An administrator
    /// asks again, or not, at any time, so this does not lapse. If no chunk is `held` any more they
    /// have ended, and the device waits for nothing.
    pub fn needed(&mut self, now_ms: u64, held: u32) {
        if held != 0 {
            self.needed_ms.get_or_insert(now_ms);
        }
    }

    /// Handles that no chunk is held any more.
    pub fn end(&mut self) {
        *self = Self::NONE;
    }

    /// Returns how long something has waited at `now_ms`.
    fn waited_ms(&self, now_ms: u64) -> u64 {
        let refused_ms = self
            .refused_ms
            .map_or(0, |(first_ms, last_ms)| last_ms.saturating_sub(first_ms));
        let needed_ms = self.needed_ms.map_or(0, |ms| now_ms.saturating_sub(ms));
        refused_ms.max(needed_ms)
    }

    /// Begins a look at the requests in flight, if something waits and the last look was long ago:
    /// [`Quarantine::look`] of each chunk follows.
    pub fn look(&mut self, now_ms: u64) -> Option<Look> {
        let is_due = |ms| now_ms.saturating_sub(ms) >= UNANSWERED_MS;
        let is_waiting = self.refused_ms.is_some() || self.needed_ms.is_some();
        if !is_waiting || !self.looked_ms.is_none_or(is_due) {
            return None;
        }
        let is_first = self.looked_ms.replace(now_ms).is_none();
        Some(Look { is_first })
    }

    /// Ends a look; `is_any_unanswered`: a request was in flight at the look before and still is.
    pub fn looked(&mut self, look: Look, is_any_unanswered: bool) {
        self.may_hang = look.is_first || self.looked_ms.is_none() || is_any_unanswered;
    }

    /// Returns whether to disconnect all paths now. The `in_flight` requests wait meanwhile: the
    /// paths stay connected longer while there are any and `setting` lets requests fail earlier,
    /// and as long as one gets no answer, which the server would wait for.
    pub fn is_too_long(&mut self, now_ms: u64, setting: FastIoFail, in_flight: u32) -> bool {
        let impatient = matches!(setting, FastIoFail::After(s) if s <= AWAY_S);
        let patience_ms = match impatient && in_flight != 0 {
            true => self.patience_ms.max(HOLD_BACK_MS),
            false => self.patience_ms,
        };
        let is_in_vain = in_flight != 0 && self.may_hang;
        if is_in_vain || self.waited_ms(now_ms) < patience_ms {
            return false;
        }
        (self.refused_ms, self.needed_ms) = (None, None);
        let longer_ms = self.patience_ms.saturating_add(self.patience_ms / 2);
        self.patience_ms = longer_ms.min(PATIENCE_MAX_MS);
        true
    }
}

/// Returns the time that requests wait in an outage; with `is_away` a [`Shortage`] started the
/// outage, and they wait for its end.
pub fn outage_setting(setting: FastIoFail, is_away: bool) -> FastIoFail {
    match setting {
        FastIoFail::After(s) if is_away => FastIoFail::After(s.max(AWAY_S)),
        setting => setting,
    }
}

/// Returns the time in milliseconds for which no path is connected in such an outage, so that the
/// server frees the session. A path that `is_connecting` is longer there: until it is given up, its
/// last admin message may wait for an answer, or for a chunk that is held.
pub const fn away_ms(is_connecting: bool) -> u32 {
    if is_connecting {
        ONE_PATH_ANSWER_MS + AWAY_MS
    } else {
        AWAY_MS
    }
}

/// Returns the time that a request may wait for a held chunk, in milliseconds, where requests wait
/// `fast_io_fail_ms` for a path; `None`: without limit.
pub fn wait_limit_ms(fast_io_fail_ms: Option<u64>) -> Option<u64> {
    fast_io_fail_ms.map(|ms| ms.max(WAIT_MIN_MS))
}
