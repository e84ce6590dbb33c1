// SPDX-License-Identifier: GPL-2.0

//! The assignment of a connect request to a path of its session: to an existing one, or to a new
//! one that replaces others.
//!
//! A client whose path failed may reconnect before the server has detected the failure. It is
//! identified by the uuid of its session, with which the server found the session, and the uuid of
//! the path, which only the client knows. The client's request is newer than the server's state, so
//! the server closes the old path. The new path gets the chunks only after the last request of the
//! old one has ended: no old WRITE is executed after a new one (D26).

use ferro_proto::errno::Errno;

use super::{
    handshake::{
        Connect,
        Refusal, //
    },
    path::ServerState,
    PATHS_MAX, //
};

/// The state of a path of the session that is compared with a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The path has the uuid of the request.
    pub same_path: bool,
    /// The path has the addresses of the request.
    pub same_addresses: bool,
    /// `recon_cnt` of its connect requests.
    pub recon_cnt: u16,
    /// Its state.
    pub state: ServerState,
    /// Its client has not acknowledged a heartbeat for one interval.
    pub silent: bool,
}

impl Known {
    /// Returns whether the path of the request would replace this one.
    pub const fn is_rival(&self) -> bool {
        self.same_path || self.same_addresses
    }

    const fn is_ending(&self) -> bool {
        matches!(self.state, ServerState::Closing | ServerState::Closed)
    }
}

/// The decision about a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request is a further connection of the path at this index of the list.
    Join(usize),
    /// The request starts a new path; the server closes the rivals of that path.
    Begin,
}

/// Decides about `connect`, which names the session that has the paths `known`.
///
/// `recon_cnt` wraps around, so of two numbers the newer one is that which is less than 2^15 steps
/// ahead (RFC 1982).
///
/// # Errors
///
/// * `Stale`: the path has connected since, or it was created by this request and has ended.
/// * `NotAdminFirst`: the first connection of the path is not the admin connection.
/// * `AddressTaken`: another path has these addresses, and its client answers. (A path whose client
///   does not answer, or that is closing, remains after a client removed the path and added it
///   again; the new one replaces it.)
/// * `TooManyPaths`: the session has [`PATHS_MAX`] paths, or twice as many with the closing ones,
///   so that a client can reconnect all of its paths at once.
pub fn admit(
    connect: &Connect,
    known: impl Iterator<Item = Known> + Clone,
) -> Result<Admission, Refusal> {
    let same = known
        .clone()
        .position(|k| k.same_path && k.recon_cnt == connect.recon_cnt);
    if let Some(index) = same {
        return Ok(Admission::Join(index));
    }
    let mut live = 0_usize;
    let mut all = 0_usize;
    for path in known {
        all = all.saturating_add(1);
        if path.same_path {
            if !is_newer(connect.recon_cnt, path.recon_cnt) {
                return Err(Refusal::Stale(connect.recon_cnt));
            }
        } else if path.same_addresses {
            let gives_way =
                path.is_ending() || (path.silent && matches!(path.state, ServerState::Connected));
            if !gives_way {
                return Err(Refusal::AddressTaken);
            }
        } else if !path.is_ending() {
            live = live.saturating_add(1);
        }
    }
    connect.check_new_path()?;
    if live >= PATHS_MAX || all >= PATHS_MAX.saturating_mul(2) {
        return Err(Refusal::TooManyPaths);
    }
    Ok(Admission::Begin)
}

/// The number of times that a connect request is decided anew because its session was created or
/// has ended while its path was prepared. Each time another request of the same client was faster.
pub const ROUNDS: usize = 4;

/// Returns whether a path that was prepared without the locks may be added now, for a session that
/// the server knew before (`was_known`) or is about to add. `found` says whether the server knows a
/// session with the client's identifier now, and whether that is the same one.
///
/// If two requests create one session at a time, the second one frees its own and uses that of the
/// first. If the session has ended, a path that was added to it could not be found.
pub const fn is_unchanged(was_known: bool, found: Option<bool>) -> bool {
    match found {
        Some(is_same) => was_known && is_same,
        None => !was_known,
    }
}

/// Returns whether a connect request that was refused is decided anew: there was no memory for a
/// session of its own, which the server did not know (`was_known`), but knows by now (`is_known`),
/// as another request of the client has created it. With that the request needs none.
pub const fn is_decided_anew(refusal: &Refusal, was_known: bool, is_known: bool) -> bool {
    let is_of_memory = matches!(refusal, Refusal::MemoryLimit | Refusal::NoMemory);
    is_of_memory && !was_known && is_known
}

/// The maximum time that a session waits for its name, in milliseconds: enough for the server to
/// detect a dead client and end its session, with the default heartbeat interval.
pub const NAME_WAIT_MS: u32 = 10_000;

/// The state of a path of the session whose name another session requests, since the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its state.
    pub state: ServerState,
    /// A message of its client has arrived since.
    pub heard: bool,
}

/// The decision about a session that requests the name of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClaim {
    /// The other session may be ending: the caller asks again.
    Wait,
    /// The server rejects the session with this error.
    Refused(Errno),
}

/// Decides about the name of the session with the paths `holders`, `waited_ms` after another
/// session requested it. The server sends heartbeats on the paths of the holder at the request,
/// which a live client acknowledges.
///
/// A restarted client gets its name when its old session has ended. If another client uses the
/// name, the result is `EPERM` at once. The result is `EBUSY` if the old session has not ended in
/// time, because its disk does not complete requests or the heartbeat interval is long; the client
/// may retry later.
pub fn claim_name(holders: impl Iterator<Item = Holder>, waited_ms: u32) -> NameClaim {
    let is_used = |holder: Holder| holder.heard && holder.state == ServerState::Connected;
    if { holders }.any(is_used) {
        NameClaim::Refused(Errno::EPERM)
    } else if waited_ms >= NAME_WAIT_MS {
        NameClaim::Refused(Errno::EBUSY)
    } else {
        NameClaim::Wait
    }
}

/// Returns whether `a` is after `b` in a sequence that wraps around.
const fn is_newer(a: u16, b: u16) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 1 << 15
}
