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

use super::PATHS_MAX;

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

    /// Returns the chunk of this ticket if it is held for its request.
    fn held_for(&self, ticket: Ticket) -> Option<&Chunk> {
        let chunk = self.chunks.get(usize::from(ticket.chunk));
        chunk.filter(|c| c.is_held() && c.loss == ticket.loss)
    }

    /// Returns whether the server may still execute the copy that was lost.
    pub fn may_be_executed(&self, ticket: Ticket) -> bool {
        self.held_for(ticket).is_some()
    }

    /// Returns whether the chunk of this ticket is held for its request, which is not in flight.
    fn waits_for(&self, ticket: Ticket) -> bool {
        self.held_for(ticket).is_some_and(|c| c.lent_to.is_none())
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

    /// Handles the connect of a path, as [`connected`](Self::connected), for some of the chunks.
    /// The caller goes on with the others, [a piece](pieces) at a time, and the path loses no
    /// request meanwhile.
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

    /// Handles that the server does not know the session, as [`forgotten`](Self::forgotten), for
    /// some of the chunks; the caller goes on with the others.
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
