// SPDX-License-Identifier: GPL-2.0

//! Decides how long a peer is waited for, by the times that its last answers took.
//!
//! The mean and the deviation are those of RFC 6298. A reader waits for a page, and can have it
//! from the file server, so the limits are 50 ms and, unless the administrator sets another one,
//! 200 ms. Each silence doubles the time, up to the upper limit, until the peer answers.

/// The minimum time, in microseconds.
pub const TIMEOUT_US_MIN: u32 = 50_000;

/// The maximum time, in microseconds, unless another one is set.
pub const TIMEOUT_US_MAX: u32 = 200_000;

/// The largest maximum that may be set, in microseconds.
pub const TIMEOUT_US_LIMIT: u32 = 2_000_000;

/// The time for a peer that has never answered, in microseconds.
const TIMEOUT_US_FIRST: u32 = 100_000;

/// The minimum time after which an owner is sent a request once more, in microseconds. A datagram
/// is lost far more often than a peer.
const AGAIN_US_MIN: u32 = 10_000;

/// The minimum and the maximum time for which fragments may come behind the reply.
const GRACE_US_MIN: u32 = 1_000;
const GRACE_US_MAX: u32 = 20_000;

/// The number of doublings from the minimum to the largest maximum.
const SILENCES_MAX: u8 = 6;

/// The faults that a silence counts, of which an answer takes one away, and from how many on other
/// reads do not ask the peer either, and for which time, in microseconds: after three silences with
/// up to two answers in between. Of datagrams of which 5 % are lost two in a row are soon lost, and
/// an owner that is asked in its place knows of no copy. A peer whose public queue pair is flooded
/// answers some of the requests, and would cost a read a silence again and again.
const SILENCE_FAULTS: u8 = 4;
const LOST_FAULTS: u8 = 10;
const LOST_US: u64 = 1_000_000;

/// The time for which other reads do not ask a peer that has kept one until its end, in
/// microseconds: twice as long as that read has waited, so that a peer that keeps each of them
/// takes a third of the time of who reads page by page.
const KEPT_US: u64 = 2 * super::requester::READ_US;

const _: () = assert!(TIMEOUT_US_MIN << SILENCES_MAX >= TIMEOUT_US_LIMIT);

/// The times to wait for the answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time until anything comes, in microseconds.
    pub timeout_us: u32,
    /// The time until the same request is sent once more, to an owner, in microseconds.
    pub again_us: u32,
    /// The time for each further fragment after the reply, in microseconds.
    pub grace_us: u32,
}

/// The times that a peer takes to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    /// The mean times 8, and the deviation times 4; `None` if it has never answered.
    smooth: Option<(u32, u32)>,
    /// The number of times that it was silent since it has answered last, up to [`SILENCES_MAX`].
    silences: u8,
    /// The faults of its silences, up to [`LOST_FAULTS`].
    faults: u8,
    /// The time at which it was silent last, in microseconds.
    silent_us: u64,
    /// The time until which no read asks it, as it has kept one, in microseconds.
    kept_until_us: u64,
}

impl Rtt {
    /// No answer yet.
    pub const NEW: Self = Self {
        smooth: None,
        silences: 0,
        faults: 0,
        silent_us: 0,
        kept_until_us: 0,
    };

    /// Takes the time that an answer took, in microseconds; `None` if it says nothing of the peer,
    /// as the peer had to wait itself.
    pub fn answered(&mut self, rtt_us: Option<u32>) {
        self.silences = 0;
        self.faults = self.faults.saturating_sub(1);
        let Some(rtt_us) = rtt_us.map(|rtt_us| rtt_us.min(TIMEOUT_US_LIMIT)) else {
            return;
        };
        // At most 2,000,000, and 8 times as much: no sum overflows.
        self.smooth = Some(match self.smooth {
            None => (rtt_us.wrapping_mul(8), rtt_us.wrapping_mul(2)),
            Some((mean, deviation)) => {
                let error = rtt_us.abs_diff(mean / 8);
                let mean = mean.wrapping_sub(mean / 8).wrapping_add(rtt_us);
                let deviation = deviation.wrapping_sub(deviation / 4).wrapping_add(error);
                (mean, deviation)
            }
        });
    }

    /// The peer has not answered in time.
    pub fn silent(&mut self, now_us: u64) {
        self.silences = self.silences.saturating_add(1).min(SILENCES_MAX);
        self.silent_us = now_us;
        self.faults = self.faults.saturating_add(SILENCE_FAULTS).min(LOST_FAULTS);
    }

    /// The peer has kept a read for long, and given nothing: it said again and again that it waits
    /// itself.
    pub fn kept(&mut self, now_us: u64) {
        self.kept_until_us = now_us.saturating_add(KEPT_US);
    }

    /// Returns whether it was silent three times, with two answers in between at most, and the last
    /// time less than a second ago, or has kept a read until its end, less than ten seconds ago.
    /// Another read is better off without it: it would find out by the same silences, or wait as
    /// long.
    pub fn is_lost(&self, now_us: u64) -> bool {
        let is_silent =
            self.faults >= LOST_FAULTS && now_us.saturating_sub(self.silent_us) < LOST_US;
        is_silent || now_us < self.kept_until_us
    }

    /// Returns whether it was silent lately, or has kept a read.
    pub const fn is_silent(&self) -> bool {
        self.faults != 0 || self.kept_until_us != 0
    }

    /// Returns how long to wait for the next answer.
    pub fn timing(&self) -> Timing {
        self.timing_within(TIMEOUT_US_MAX)
    }

    /// Returns how long to wait for the next answer, if no answer is waited for longer than
    /// `timeout_us_max`, [`TIMEOUT_US_MIN`] to [`TIMEOUT_US_LIMIT`].
    pub fn timing_within(&self, timeout_us_max: u32) -> Timing {
        let (known_us, mean_us) = match self.smooth {
            None => (0, 0),
            Some((mean, deviation)) => ((mean / 8).saturating_add(deviation), mean / 8),
        };
        let due_us = match self.smooth {
            None => TIMEOUT_US_FIRST,
            Some(_) => known_us.max(TIMEOUT_US_MIN),
        };
        let timeout_us = due_us
            .saturating_mul(1u32.wrapping_shl(self.silences.into()))
            .min(timeout_us_max);
        Timing {
            timeout_us,
            again_us: known_us.max(AGAIN_US_MIN).max(timeout_us / 4),
            grace_us: (mean_us / 2).clamp(GRACE_US_MIN, GRACE_US_MAX),
        }
    }
}
