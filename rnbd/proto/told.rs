// SPDX-License-Identifier: GPL-2.0

//! Whether a client knows that its session has a device open.
//!
//! A device may open when no client waits for it any more: the OPEN was answered with `ETIMEDOUT`
//! ([`answer_time`](super::answer_time)), or its path is gone. The next OPEN finds it, so that one
//! that is slow is opened in the end; without one it is closed after a while, since a client that
//! does not ask again has given up. No request can use it until then, as no client has its number.

/// The time after the last OPEN of the session for which a device is kept that no client knows of,
/// in milliseconds. A client asks for its devices in turn, some seconds each: as long as it asks
/// for others, the turn of this one may come. In the time itself two paths can be validated.
const KEPT_MS: u64 = 15_000;

/// The time for which it is kept at most, since a client may ask for ever for another device, which
/// is silent: enough for the turns of a hundred.
const KEPT_MAX_MS: u64 = 300_000;

/// The knowledge of a client about a device that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The time since which no client knows of it; `None`: one has been told its number.
    lost_ms: Option<u64>,
}

impl Told {
    /// A client has the number, or is about to get it.
    pub const YES: Self = Self { lost_ms: None };

    /// Notes that an OPEN has found the device, so that it stays open until the answer is sent;
    /// returns whether no client knew of it.
    pub fn ask(&mut self) -> bool {
        self.lost_ms.take().is_some()
    }

    /// Notes at `now_ms` that the OPEN had no client any more. A client that knew of the device
    /// still does: the caller leaves that alone.
    pub fn lost(&mut self, now_ms: u64) {
        self.lost_ms = Some(now_ms);
    }

    /// Returns whether no client knows of the device.
    pub const fn is_no(&self) -> bool {
        self.lost_ms.is_some()
    }

    /// Returns whether the device is to be closed at `now_ms`; the last OPEN of the session came at
    /// `asked_ms`.
    pub fn is_over(&self, now_ms: u64, asked_ms: u64) -> bool {
        let since = |ms| now_ms.saturating_sub(ms);
        self.lost_ms.is_some_and(|lost_ms| {
            since(lost_ms.max(asked_ms)) >= KEPT_MS || since(lost_ms) >= KEPT_MAX_MS
        })
    }
}
