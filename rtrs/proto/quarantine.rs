// SPDX-License-Identifier: GPL-2.0

//! Chunks of requests that were lost on a path: the server may still work on what is in them.
//!
//! A request that is lost with its path may be in the hands of the server all the same: in the
//! queue of a disk, for as long as that disk likes. It will take its data from the chunk then, or
//! put them there. So nothing else may go into the chunk before the server is known to be done.
//! Three things show that:
//!
//! - the *same request* was sent again in the same chunk on another path, and is answered: a server
//!   that fences its chunks (decision 0006) answers it after the first copy has ended;
//! - the *path* is connected anew: the server tells it where to write when what its last life had
//!   in flight has ended;
//! - the server does not *know the session*: it forgets one when the last of its paths is drained.
//!
//! Time does not.

use core::ops::DerefMut;

use super::{
    outage::FastIoFail,
    PATHS_MAX, //
};

/// A set of paths, by their numbers.
type Paths = u128;

const _: () = assert!(PATHS_MAX == Paths::BITS as usize);

const fn bit(path: u8) -> Paths {
    // CAST: A `u8`. A number beyond the paths is none.
    match 1u128.checked_shl(path as u32) {
        Some(bit) => bit,
        None => 0,
    }
}

/// What is known of one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The paths on which a request of this chunk was lost, and whose ends at the server have not
    /// been seen yet.
    paths: Paths,
    /// The number of the last of these losses.
    loss: u64,
    /// The request that was lost is under way here again; this is the chunk of the tag that it has
    /// now.
    lent_to: Option<u16>,
}

impl Chunk {
    fn is_held(&self) -> bool {
        self.paths != 0 || self.lent_to.is_some()
    }
}

/// What a request that was lost remembers of that: with it, and unchanged, it may go out again in
/// the chunk that it was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    chunk: u16,
    loss: u64,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The chunk that it uses.
    pub chunk: u16,
    /// It was in this chunk before, and is lost there: to be followed by
    /// [`answered`](Quarantine::answered), [`lost`](Quarantine::lost) or
    /// [`given_back`](Quarantine::given_back).
    pub is_again: bool,
}

/// The chunks of a session and its paths. `C` is memory with a [`Chunk`] for each.
#[derive(Clone, Debug)]
pub struct Quarantine<C> {
    chunks: C,
    /// Losses so far.
    losses: u64,
    /// Chunks that are held.
    held: u32,
    /// The numbers of the paths that there are.
    paths: Paths,
}

impl<C: DerefMut<Target = [Chunk]>> Quarantine<C> {
    /// Nothing is held; a session without paths.
    pub fn new(chunks: C) -> Self {
        Self {
            chunks,
            losses: 0,
            held: 0,
            paths: 0,
        }
    }

    /// Uses this memory from now on, as long as nothing was lost; gives back what it does not use.
    pub fn provide(&mut self, chunks: C) -> C {
        if self.losses != 0 {
            return chunks;
        }
        core::mem::replace(&mut self.chunks, chunks)
    }

    /// Returns how many chunks are held.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Says whether the chunk must not carry any other request.
    pub fn is_held(&self, chunk: u16) -> bool {
        self.chunks
            .get(usize::from(chunk))
            .is_some_and(Chunk::is_held)
    }

    /// Changes a chunk and keeps count.
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

    fn change_all(&mut self, change: impl Fn(&mut Chunk)) {
        for chunk in (0..=u16::MAX).take(self.chunks.len()) {
            self.change(chunk, &change);
        }
    }

    /// Returns a path is added: returns its number. `None` if there is none left, for a number is
    /// not used again while a chunk is held because of it.
    pub fn add_path(&mut self) -> Option<u8> {
        let taken = self.chunks.iter().fold(self.paths, |t, c| t | c.paths);
        // CAST: At most 128.
        let number = taken.trailing_ones() as u8;
        let bit = bit(number);
        self.paths |= bit;
        (bit != 0).then_some(number)
    }

    /// A path is removed. That says nothing of its end at the server: what is held is held on.
    pub fn remove_path(&mut self, path: u8) {
        self.paths &= !bit(path);
    }

    /// Returns the connections of a path are drained, and the request in this chunk had no answer.
    pub fn lost(&mut self, chunk: u16, path: u8) -> Ticket {
        self.losses = self.losses.saturating_add(1);
        let loss = self.losses;
        self.change(chunk, |c| {
            c.paths |= bit(path);
            c.loss = loss;
        });
        Ticket { chunk, loss }
    }

    /// Returns a request goes out whose tag stands for chunk `own`: returns where, or `None` if it
    /// has to wait. One that was lost uses the chunk that it was in as long as that is held; in any
    /// other place its first copy could come after it.
    pub fn take(&mut self, own: u16, ticket: Option<Ticket>) -> Option<Place> {
        if let Some(ticket) = ticket {
            let first = self.chunks.get(usize::from(ticket.chunk)).copied();
            if first.is_some_and(|c| c.is_held() && c.loss == ticket.loss && c.lent_to.is_none()) {
                self.change(ticket.chunk, |c| c.lent_to = Some(own));
                return Some(Place {
                    chunk: ticket.chunk,
                    is_again: true,
                });
            }
        }
        (!self.is_held(own)).then_some(Place {
            chunk: own,
            is_again: false,
        })
    }

    /// The request in this chunk has left the driver, without an answer: it was not sent, or was
    /// lost and is not sent again by itself.
    pub fn given_back(&mut self, chunk: u16) {
        self.change(chunk, |c| c.lent_to = None);
    }

    /// The request in this chunk was answered, on any path: no copy of it is left at the server.
    pub fn answered(&mut self, chunk: u16) {
        self.change(chunk, |c| {
            c.paths = 0;
            c.lent_to = None;
        });
    }

    /// The path is connected anew: its last life is over at the server.
    pub fn connected(&mut self, path: u8) {
        self.change_all(|c| c.paths &= !bit(path));
    }

    /// Returns a path is about to be connected again: returns what to tell [`Self::forgotten`] if
    /// the server turns out not to know the session, that is how many losses there were before it
    /// was asked. `None` if there is no need to ask, because no chunk is held for another path.
    pub fn inquiry(&self, path: u8) -> Option<u64> {
        let others = !bit(path);
        let unseen = self.held != 0 && self.chunks.iter().any(|c| c.paths & others != 0);
        unseen.then_some(self.losses)
    }

    /// The server does not know the session, so all of its paths are over there; `losses` is the
    /// number when it was asked. What was lost since then was lost in a new session.
    pub fn forgotten(&mut self, losses: u64) {
        self.change_all(|c| {
            if c.loss <= losses {
                c.paths = 0;
            }
        });
    }

    /// Returns the chunk which the request uses whose tag stands for chunk `own`, if that is
    /// another.
    pub fn used_instead_of(&self, own: u16) -> Option<u16> {
        (0..=u16::MAX)
            .zip(self.chunks.iter())
            .find(|(id, c)| c.lent_to == Some(own) && *id != own)
            .map(|(id, _)| id)
    }
}

/// Time for which requests wait for held chunks before their session is begun anew; half as long
/// again each time that was in vain. A connect request that the network has held back can keep a
/// forgotten session alive at its server for 30 s: three tries fall into [`WAIT_MIN_MS`], and the
/// third comes more than 30 s after the first.
const PATIENCE_MS: u64 = 10_000;
/// The same after several times in vain.
const PATIENCE_MAX_MS: u64 = 640_000;
/// No request has waited for so long: there is none any more.
const LAPSE_MS: u64 = 60_000;
/// Longest time of an outage that ends by itself: so long a session is away to be forgotten.
const AWAY_S: u32 = 5;
/// Shortest time that a request waits for a held chunk before it fails.
const WAIT_MIN_MS: u64 = 60_000;

/// Requests that wait for held chunks while a path is up.
///
/// A path that does not come back would hold them for ever. A server forgets a session that has no
/// path: so all paths are given up for a moment, and it is asked for the session when they are
/// connected again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The first and the last time that a request found its chunk held.
    refused_ms: Option<(u64, u64)>,
    patience_ms: u64,
}

impl Shortage {
    /// No request waits.
    pub const NONE: Self = Self {
        refused_ms: None,
        patience_ms: PATIENCE_MS,
    };

    /// A request finds its chunk held. It asks again, often.
    pub fn refused(&mut self, now_ms: u64) {
        self.refused_ms = match self.refused_ms {
            Some((first_ms, last_ms)) if now_ms.saturating_sub(last_ms) < LAPSE_MS => {
                Some((first_ms, now_ms))
            }
            _ => Some((now_ms, now_ms)),
        };
    }

    /// No chunk is held any more.
    pub fn end(&mut self) {
        *self = Self::NONE;
    }

    /// Says whether to give all paths up now. `in_flight` requests would have to wait for that:
    /// they are let be where they would rather fail.
    pub fn is_too_long(&mut self, setting: FastIoFail, in_flight: u32) -> bool {
        let impatient = matches!(setting, FastIoFail::After(s) if s <= AWAY_S);
        match self.refused_ms {
            Some((first_ms, last_ms))
                if last_ms.saturating_sub(first_ms) >= self.patience_ms
                    && (in_flight == 0 || !impatient) =>
            {
                self.refused_ms = None;
                let longer_ms = self.patience_ms.saturating_add(self.patience_ms / 2);
                self.patience_ms = longer_ms.min(PATIENCE_MAX_MS);
                true
            }
            _ => false,
        }
    }
}

/// Returns how long requests wait in an outage; `is_away`: it is one that a [`Shortage`] has made,
/// and they wait for its end.
pub fn outage_setting(setting: FastIoFail, is_away: bool) -> FastIoFail {
    match setting {
        FastIoFail::After(s) if is_away => FastIoFail::After(s.max(AWAY_S)),
        setting => setting,
    }
}

/// Returns how long a request may wait for a held chunk, in milliseconds, where requests may wait
/// for `fast_io_fail_ms` for a path; `None`: for ever.
pub fn wait_limit_ms(fast_io_fail_ms: Option<u64>) -> Option<u64> {
    fast_io_fail_ms.map(|ms| ms.max(WAIT_MIN_MS))
}
