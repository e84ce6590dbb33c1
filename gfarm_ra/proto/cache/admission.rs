// SPDX-License-Identifier: GPL-2.0

//! Limits how much a node does for others at a time, and how much it asks of each.
//!
//! A datagram for which no receive is posted is lost without a trace. So a node tells each peer how
//! many requests it serves for it at a time, its *credits*, and the peer sends no more than these.

use super::reply::Answer;

/// The maximum number of requests that a node serves for one peer at a time.
pub const CREDITS_MAX: u16 = 16;

/// The credits of a peer that has not told them yet.
pub const CREDITS_FIRST: u16 = 4;

/// The time after which a peer that was refused asks again, in milliseconds.
const BUSY_MS: u16 = 5;

/// The maximum of it, in milliseconds.
const BUSY_MS_MAX: u64 = 1000;

/// The time by which bytes may be sent ahead of their rate, in microseconds.
const BURST_US: u64 = 100_000;

/// The requests that a node serves for one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLoad {
    serving: u16,
}

impl PeerLoad {
    /// The value of a peer without a request.
    pub const NEW: Self = Self { serving: 0 };

    /// Returns whether it has no request here.
    pub const fn is_idle(&self) -> bool {
        self.serving == 0
    }
}

/// The requests that a node serves for all peers, and the bytes that it sends to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The number of requests at a time.
    capacity: u16,
    serving: u16,
    /// The number of peers for which it serves any.
    peers: u16,
    /// The bytes that it sends in a second; 0 is no limit.
    rate_bytes: u64,
    /// The time when all that was sent would have left at that rate, in microseconds.
    paid_us: u64,
}

impl Admission {
    /// Serves at most `capacity` requests at a time, and sends at most `rate_bytes` in a second on
    /// the average; 0 is no limit.
    pub const fn new(capacity: u16, rate_bytes: u64) -> Self {
        Self {
            capacity,
            serving: 0,
            peers: 0,
            rate_bytes,
            paid_us: 0,
        }
    }

    /// Returns how many requests each peer may have under way here.
    pub fn credits(&self) -> u16 {
        let sharers = self.peers.max(1);
        let share = self.capacity.checked_div(sharers).unwrap_or(0);
        share.clamp(1, CREDITS_MAX)
    }

    /// Admits a request of a peer for `len_bytes`, until [`release`](Self::release). A caller that
    /// does not know yet how much will be sent admits 0 bytes, and [pays](Self::pay) later.
    ///
    /// # Errors
    ///
    /// Returns the answer for the peer if its request is not admitted.
    pub fn admit(
        &mut self,
        load: &mut PeerLoad,
        len_bytes: u64,
        now_us: u64,
    ) -> Result<(), Answer> {
        if self.serving >= self.capacity || load.serving >= self.credits() {
            let wait_ms = BUSY_MS;
            return Err(Answer::Busy { wait_ms });
        }
        self.pay(len_bytes, now_us)?;
        if load.serving == 0 {
            self.peers = self.peers.saturating_add(1);
        }
        load.serving = load.serving.saturating_add(1);
        self.serving = self.serving.saturating_add(1);
        Ok(())
    }

    /// Counts `len_bytes` that are about to be sent.
    ///
    /// # Errors
    ///
    /// Returns the answer for the peer if too much was sent lately.
    pub fn pay(&mut self, len_bytes: u64, now_us: u64) -> Result<(), Answer> {
        if len_bytes == 0 {
            return Ok(());
        }
        let takes_us = len_bytes.saturating_mul(1_000_000);
        let Some(takes_us) = takes_us.checked_div(self.rate_bytes) else {
            return Ok(());
        };
        let ahead_us = self.paid_us.saturating_sub(now_us);
        if let Some(over_us @ 1..) = ahead_us.checked_sub(BURST_US) {
            let wait_ms = over_us.div_ceil(1000).min(BUSY_MS_MAX);
            // CAST: At most 1000.
            let wait_ms = wait_ms as u16;
            return Err(Answer::Busy { wait_ms });
        }
        self.paid_us = self.paid_us.max(now_us).saturating_add(takes_us);
        Ok(())
    }

    /// Ends a request that was admitted: its last fragment has left, or it was given up.
    pub fn release(&mut self, load: &mut PeerLoad) {
        if load.serving == 0 {
            return;
        }
        load.serving = load.serving.saturating_sub(1);
        self.serving = self.serving.saturating_sub(1);
        if load.serving == 0 {
            self.peers = self.peers.saturating_sub(1);
        }
    }
}

/// The requests that a node has under way at one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    limit: u16,
    used: u16,
}

impl Credits {
    /// No request is under way.
    pub const NEW: Self = Self {
        limit: CREDITS_FIRST,
        used: 0,
    };

    /// Takes the number that a reply tells. 0, which no node tells, is taken for 1.
    pub fn granted(&mut self, credits: u16) {
        self.limit = credits.clamp(1, CREDITS_MAX);
    }

    /// Counts a request that is to be sent; `false` if there are too many under way.
    pub fn take(&mut self) -> bool {
        let has_any = self.used < self.limit;
        if has_any {
            self.used = self.used.saturating_add(1);
        }
        has_any
    }

    /// Returns whether none is under way.
    pub const fn is_idle(&self) -> bool {
        self.used == 0
    }

    /// A request has ended, by a reply or by silence.
    pub fn give_back(&mut self) {
        self.used = self.used.saturating_sub(1);
    }
}
