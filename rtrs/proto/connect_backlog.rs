// SPDX-License-Identifier: GPL-2.0

//! The backlog of connect requests that begin a path: the order in which a server answers them.
//!
//! It registers 512 chunks for each, one after the other, which takes an adapter some tenths of a
//! second. A client waits 1.5 s most times ([`timeouts`](super::timeouts)), and asks again. When a
//! server starts, all its clients ask at once: if it answered in their order, it would soon be busy
//! with requests that have been given up, for ever. So the newest request is next:
//! its client waits for sure.

use super::handshake::Connect;

/// The maximum number of requests that wait. A further one replaces the oldest.
pub const WAITING_MAX: usize = 256;

/// The maximum number of requests given up that are left to work items.
const LEFT_MAX: u32 = 64;

/// The requests given up that work items drop.
///
/// A request is given up by the thread that adds a newer one. It has the handler lock of that, and
/// cannot drop the older one, which has another. But a client that asks faster than work items run
/// would have them, and what they hold, grow without end: so with too many of them the newer
/// request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left(u32);

impl Left {
    /// No request.
    pub const NONE: Self = Self(0);

    /// Adds a request that is about to be given up; returns `false` if none may.
    #[must_use]
    pub fn add(&mut self) -> bool {
        let has_room = self.0 < LEFT_MAX;
        if has_room {
            self.0 = self.0.saturating_add(1);
        }
        has_room
    }

    /// Removes a request that was dropped, or not given up.
    pub fn dropped(&mut self) {
        self.0 = self.0.saturating_sub(1);
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
/// the requests that wait, the oldest first.
pub fn replaced<'a>(
    newer: &Connect,
    mut waiting: impl ExactSizeIterator<Item = &'a Connect>,
) -> Option<usize> {
    let is_full = waiting.len() >= WAITING_MAX;
    // A client asks for a path anew when it has given up the last time.
    let of_same_path = waiting.position(|older| {
        older.sess_uuid == newer.sess_uuid && older.paths_uuid == newer.paths_uuid
    });
    of_same_path.or(is_full.then_some(0))
}
