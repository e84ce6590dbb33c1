// SPDX-License-Identifier: GPL-2.0

//! Where a connect request belongs among the paths that its session has: to one of them, or to a
//! new one that takes the place of others.
//!
//! A client whose path broke comes back before the server has noticed. It is known by what only it
//! can know: the uuid of its session, under which the request was looked up, and that of the path.
//! What it says then is newer than what the server believes, so the old path is closed. The new
//! one is told where the chunks are only after the old one's last request has ended: no old WRITE
//! is executed after a new one (D26).

use ferro_proto::errno::Errno;

use super::{
    handshake::{
        Connect,
        Refusal, //
    },
    path::ServerState,
    PATHS_MAX, //
};

/// A path of the session, as far as a connect request may have to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// It has the uuid that the request names.
    pub same_path: bool,
    /// It is between the addresses that the request is between.
    pub same_addresses: bool,
    /// `recon_cnt` of the requests that it was made of.
    pub recon_cnt: u16,
    /// Its state.
    pub state: ServerState,
    /// Its client has not answered a heartbeat for the time of one.
    pub silent: bool,
}

impl Known {
    /// Says whether the path of the request would take the place of this one.
    pub const fn is_rival(&self) -> bool {
        self.same_path || self.same_addresses
    }

    const fn is_ending(&self) -> bool {
        matches!(self.state, ServerState::Closing | ServerState::Closed)
    }
}

/// What becomes of a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is one more connection of the path at this place of the list.
    Join(usize),
    /// It begins a new path; the rivals of that are to be closed.
    Begin,
}

/// Decides about `connect`, which names the session that has the paths `known`.
///
/// `recon_cnt` wraps around, so of two numbers the newer one is that which is less than 2^15 steps
/// ahead (RFC 1982).
///
/// # Errors
///
/// * `Stale`: the path has connected since, or this is what it was made of and it has ended.
/// * `NotAdminFirst`: the path would begin with another connection.
/// * `AddressTaken`: another path is between these addresses, and its client is there. (One whose
///   client is silent, or that is ending, is what a client left behind that was told to remove
///   a path and to add it again: it gives way.)
/// * `TooManyPaths`: those that are ending count only twofold, so that a client whose paths all
///   have to come back can do so.
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

/// Longest time that a session waits for its name, in milliseconds: enough for the end of a session
/// whose client is found dead meanwhile, with the heartbeats' default interval.
pub const NAME_WAIT_MS: u32 = 10_000;

/// A path of the session that has a name which another session asks for, since it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its state.
    pub state: ServerState,
    /// Its client has said something since.
    pub heard: bool,
}

/// What becomes of a session that asks for a name which another one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClaim {
    /// The other one may be about to end: ask again.
    Wait,
    /// The session is refused, with this number.
    Refused(Errno),
}

/// Decides about a name that the session with the paths `holders` has, `waited_ms` after another
/// session has asked for it. The holders' clients are asked for a heartbeat then, so that one that
/// is there says so.
///
/// A client that was started anew, or that has just left, gets its name when its old session has
/// ended; one whose name somebody else uses is told at once (`EPERM`). `EBUSY`: the old session has
/// not ended in time, since its disk does not answer or heartbeats are rare; later it will have.
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

/// Says whether `a` comes after `b` in a sequence that wraps around.
const fn is_newer(a: u16, b: u16) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 1 << 15
}
