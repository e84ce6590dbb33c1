// SPDX-License-Identifier: GPL-2.0

//! Probes of a peer, one after the other, until one is answered.
//!
//! An answer counts until the last probe of the series is over. So a peer that needs longer for it
//! than a probe is waited for is no dead one.

/// The time for which an answer to a probe is waited for, in microseconds, unless the peer has
/// taken more than half of it before: then it is twice what it took. An answer counts until the
/// last probe of the series is over.
pub const PROBE_TIMEOUT_US: u64 = 150_000;

/// The longest time for which one is waited for, in microseconds. A peer of which
/// nothing is known yet is given twice the time with each probe of a series.
pub const PROBE_TIMEOUT_US_MAX: u64 = 1_200_000;

/// Probes that are without an answer.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The number of probes that were sent.
    sent: u8,
    /// The number that the answer to the first one has to repeat; that of each other one is larger
    /// by one. When that one was sent, and how long its answer is waited for.
    nonce: u32,
    begun_us: u64,
    wait_us: u32,
    /// The time that the last answer took, in microseconds; 0 if there was none.
    took_us: u32,
}

impl Series {
    /// No probe yet.
    pub const NEW: Self = Self {
        sent: 0,
        nonce: 0,
        begun_us: 0,
        wait_us: 0,
        took_us: 0,
    };

    /// Returns the number of probes without an answer.
    pub const fn sent(&self) -> u8 {
        self.sent
    }

    /// Ends it; the next probe begins another one.
    pub fn end(&mut self) {
        self.sent = 0;
    }

    /// Notes that a probe is sent, to a peer of which something is known, or nothing (`is_new`).
    /// Returns the number that its answer has to repeat, which is `random` if it is the first one,
    /// and until when it is waited for.
    pub fn send(&mut self, random: u32, is_new: bool, now_us: u64) -> (u32, u64) {
        if self.sent == 0 {
            let wait_us = u64::from(self.took_us).saturating_mul(2);
            let wait_us = wait_us.clamp(PROBE_TIMEOUT_US, PROBE_TIMEOUT_US_MAX);
            // CAST: At most 1,200,000.
            (self.nonce, self.begun_us, self.wait_us) = (random, now_us, wait_us as u32);
        }
        let nonce = self.nonce.wrapping_add(self.sent.into());
        let due_us = now_us.saturating_add(self.wait_us(self.sent, is_new));
        self.sent = self.sent.saturating_add(1);
        (nonce, due_us)
    }

    /// Returns how long the answer to a probe is waited for, in microseconds.
    fn wait_us(&self, probe: u8, is_new: bool) -> u64 {
        let doublings = if is_new { u32::from(probe).min(8) } else { 0 };
        // At most 1,200,000, and 256 times as much.
        u64::from(self.wait_us)
            .wrapping_shl(doublings)
            .min(PROBE_TIMEOUT_US_MAX)
    }

    /// Returns which of the probes has this number.
    pub fn find(&self, nonce: u32) -> Option<u8> {
        let probe = u8::try_from(nonce.wrapping_sub(self.nonce)).ok()?;
        (probe < self.sent).then_some(probe)
    }

    /// Takes the answer to a probe, which ends the series.
    pub fn answered(&mut self, probe: u8, is_new: bool, now_us: u64) {
        let waits = (0..probe).map(|p| self.wait_us(p, is_new));
        let before_us = waits.fold(self.begun_us, u64::saturating_add);
        let took_us = now_us.saturating_sub(before_us);
        // CAST: At most 1,200,000.
        self.took_us = took_us.clamp(1, PROBE_TIMEOUT_US_MAX) as u32;
        self.sent = 0;
    }
}
