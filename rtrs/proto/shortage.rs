// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for chunks that are [held](super::quarantine), and when their session is
//! begun anew for them.

use super::{
    outage::FastIoFail,
    timeouts::ONE_PATH_ANSWER_MS, //
};

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
    /// [`Quarantine::look`](super::quarantine::Quarantine::look) of each chunk follows.
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
