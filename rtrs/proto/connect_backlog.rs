// SPDX-License-Identifier: GPL-2.0

//! The backlog of connect requests that begin a path: the order in which a server answers them.
//!
//! It registers 512 chunks for each, one after the other, which takes an adapter some tenths of a
//! second. A client waits 1.5 s most times ([`timeouts`](super::timeouts)), and asks again. When a
//! server starts, all its clients ask at once: if it answered in their order, it would soon be busy
//! with requests that have been given up, for ever. So the newest request is next:
//! its client waits for sure.
//!
//! A client may ask without end. What is bounded is shared by the addresses that ask, so that one
//! of them has only its own requests given up or rejected.

use super::{
    addr::Addr,
    handshake::Connect, //
};

/// The maximum number of requests that wait. A further one replaces one.
pub const WAITING_MAX: usize = 256;

/// The maximum number of requests given up that are left to work items.
pub const LEFT_MAX: usize = 32;

/// The requests given up that work items drop.
///
/// A request is given up by the thread that adds a newer one. It has the handler lock of that, and
/// cannot drop the older one, which has another. But a client that asks faster than work items run
/// would have them, and what they hold, grow without end: so with too many of them the newer
/// request is rejected. An address may leave as many as there is room for after that, so one that
/// asks without end leaves half of the room to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left([Option<Addr>; LEFT_MAX]);

impl Left {
    /// No request.
    pub const NONE: Self = Self([None; LEFT_MAX]);

    /// Adds a request that is about to be given up for a newer one from `source`; returns `false`
    /// if none may.
    #[must_use]
    pub fn add(&mut self, source: Addr) -> bool {
        let own = count(self.0.iter().filter(|left| **left == Some(source)));
        let mut free = self.0.iter_mut().filter(|left| left.is_none());
        let place = free.next();
        // Without the one that is taken.
        if count(free) < own {
            return false;
        }
        match place {
            Some(place) => {
                *place = Some(source);
                true
            }
            None => false,
        }
    }

    /// Removes a request that was dropped, which was given up for one from `source`.
    pub fn dropped(&mut self, source: Addr) {
        if let Some(left) = self.0.iter_mut().find(|left| **left == Some(source)) {
            *left = None;
        }
    }
}

/// Returns the index of the request to answer next; `None` if none may be answered now.
/// `may_be_next` says for each request that waits, the oldest first, whether it may be answered.
pub fn next(may_be_next: impl ExactSizeIterator<Item = bool>) -> Option<usize> {
    let newest = (0..may_be_next.len())
        .zip(may_be_next)
        .filter(|(_, may_be)| *may_be)
        .last();
    newest.map(|(index, _)| index)
}

/// Returns the index of the request to give up for a `newer` one; `None` if none is. `waiting` are
/// the requests that wait and the addresses from which they came, the oldest first. If there are
/// too many, it is the oldest one of the address that has most.
pub fn replaced<'a, W>(newer: &Connect, waiting: W) -> Option<usize>
where
    W: ExactSizeIterator<Item = (&'a Connect, Addr)> + Clone,
{
    let indexed = (0..waiting.len()).zip(waiting.clone());
    // A client asks for a path anew when it has given up the last time.
    let of_same_path = indexed.clone().find(|(_, (older, _))| {
        older.sess_uuid == newer.sess_uuid && older.paths_uuid == newer.paths_uuid
    });
    if of_same_path.is_some() || waiting.len() < WAITING_MAX {
        return of_same_path.map(|(index, _)| index);
    }
    let mut first_of_most = None;
    for (index, (_, source)) in indexed {
        let own = count(waiting.clone().filter(|(_, from)| *from == source));
        if first_of_most.is_none_or(|(most, _)| own > most) {
            first_of_most = Some((own, index));
        }
    }
    first_of_most.map(|(_, index)| index)
}

/// Returns the number of items. That of an iterator checks its sum, and could panic.
fn count(items: impl Iterator) -> usize {
    items.fold(0, |sum: usize, _| sum.saturating_add(1))
}
