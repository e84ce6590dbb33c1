// SPDX-License-Identifier: GPL-2.0

//! The order in which a server answers the connect requests that begin a path.
//!
//! It registers 512 chunks for each, one after the other, which takes an adapter some tenths of a
//! second. A client waits 1.5 s most times ([`timeouts`](super::timeouts)), and asks again. When a
//! server starts, all its clients ask at once: if it answered in their order, it would soon be busy
//! with requests that have been given up, for ever. So the newest request is next:
//! its client waits for sure.

use super::handshake::Connect;

/// The requests that wait at most. One more takes the place of the oldest.
pub const WAITING_MAX: usize = 256;

/// Returns which request is answered next: of those that wait, the oldest first, for each whether
/// it may be answered now.
pub fn next(may_be_next: impl ExactSizeIterator<Item = bool>) -> Option<usize> {
    let newest = (0..may_be_next.len())
        .zip(may_be_next)
        .filter(|(_, may_be)| *may_be)
        .last();
    newest.map(|(index, _)| index)
}

/// Returns which request is given up for a `newer` one: of those that wait, the oldest first.
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
