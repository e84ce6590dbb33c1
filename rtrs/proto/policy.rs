// SPDX-License-Identifier: GPL-2.0

//! The multipath policies, which choose the path of a request.

use core::fmt;

use super::PATHS_MAX;
use ferro_proto::text;

/// The policy by which a session chooses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Policy {
    /// The connected path after the one used last.
    RoundRobin = 0,
    /// The connected path with the fewest requests in flight.
    #[default]
    MinInflight = 1,
    /// The connected path whose heartbeat was answered fastest.
    MinLatency = 2,
}

/// The policy's name is not known (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy: write round-robin, min-inflight or min-latency")
    }
}

/// The state of a path that the policies use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLoad {
    /// The path carries IO.
    pub connected: bool,
    /// Requests in flight, of those that a policy chose which [counts](Policy::counts_requests)
    /// them.
    pub inflight: u32,
    /// The latency of its last heartbeat; `None` before the first, which is not 0 (D17).
    pub latency_ns: Option<u64>,
}

/// The paths that a request has already tried.
///
/// Belongs to the request, on its submitter's stack. The C driver keeps it per CPU, where a
/// preempted submitter hides healthy paths from others (D1, D2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tried(u128);

const _: () = assert!(PATHS_MAX == u128::BITS as usize);

impl Tried {
    /// The set without a path.
    pub const NONE: Self = Self(0);

    /// Adds a path by its index. Indices beyond [`PATHS_MAX`] are ignored.
    #[inline]
    pub fn insert(&mut self, index: usize) {
        self.0 |= Self::bit(index);
    }

    /// Returns whether the path was tried. An index beyond [`PATHS_MAX`] counts as tried, so that
    /// no request tries it repeatedly.
    #[inline]
    pub fn contains(&self, index: usize) -> bool {
        index >= PATHS_MAX || self.0 & Self::bit(index) != 0
    }

    #[inline]
    fn bit(index: usize) -> u128 {
        if index < PATHS_MAX {
            // CAST: The index is below 128.
            1u128.wrapping_shl(index as u32)
        } else {
            0
        }
    }
}

/// Returns the place after `place` of the `count` routes; the first one after the last, and for a
/// place that is not there any more.
#[inline(always)]
pub const fn next(place: u32, count: u32) -> u32 {
    let next = place.wrapping_add(1);
    if next < count {
        next
    } else {
        0
    }
}

/// Returns whether [`lesser`] takes the route at `last` again without a look at another one: it is
/// idle. `inflight` is asked only if there is such a route.
#[inline(always)]
pub fn stays(last: u32, count: u32, inflight: impl FnOnce() -> u32) -> bool {
    last < count && inflight() == 0
}

/// Chooses one of the `count` routes by the requests that are in flight on them, of which it looks
/// at two, however many there are (decision 0038). Returns its place, and the place that the next
/// choice is to compare after. `last` is the place that was chosen last, and `compared` the one
/// that was compared; they need not be right, as paths come and go.
///
/// Of two routes it takes the one with fewer requests, and the last one again if both have as many.
/// Of more it compares the last one with one other, each time the next: a path that gets ahead of
/// the others is found within a round.
#[inline]
pub fn lesser(last: u32, compared: u32, count: u32, inflight: impl Fn(u32) -> u32) -> (u32, u32) {
    let last = if last < count { last } else { 0 };
    let least = inflight(last);
    if least == 0 {
        return (last, compared);
    }
    let other = match next(compared, count) {
        other if other == last => next(other, count),
        other => other,
    };
    if other != last && inflight(other) < least {
        (other, other)
    } else {
        (last, other)
    }
}

impl Policy {
    /// Returns the indices of the paths that are routes: those that requests take without a look at
    /// the others. Under min-latency there is one at most, as latencies change with heartbeats
    /// only.
    pub fn routes(
        self,
        paths: impl Iterator<Item = PathLoad> + Clone,
    ) -> impl Iterator<Item = usize> {
        let fastest = match self {
            Self::MinLatency => self.choose(None, &Tried::NONE, paths.clone()),
            Self::RoundRobin | Self::MinInflight => None,
        };
        (0..PATHS_MAX)
            .zip(paths)
            .filter(move |(index, path)| path.connected && fastest.is_none_or(|it| it == *index))
            .map(|(index, _)| index)
    }

    /// Parses a value of `mpath_policy`: the number, the short name, or the long name with any
    /// suffix, case-insensitive.
    pub fn parse(written: &[u8]) -> Result<Self, UnknownPolicy> {
        if let Ok(number) = text::parse_i32(written, 10) {
            return match number {
                0 => Ok(Self::RoundRobin),
                1 => Ok(Self::MinInflight),
                2 => Ok(Self::MinLatency),
                _ => Err(UnknownPolicy),
            };
        }
        let word = written.strip_suffix(b"\n").unwrap_or(written);
        for (policy, short, long) in [
            (Self::RoundRobin, &b"rr"[..], &b"round-robin"[..]),
            (Self::MinInflight, b"mi", b"min-inflight"),
            (Self::MinLatency, b"ml", b"min-latency"),
        ] {
            let long_matches = word
                .get(..long.len())
                .is_some_and(|w| w.eq_ignore_ascii_case(long));
            if long_matches || word.eq_ignore_ascii_case(short) {
                return Ok(policy);
            }
        }
        Err(UnknownPolicy)
    }

    /// Converts a stored number to a policy.
    #[inline]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::RoundRobin),
            1 => Some(Self::MinInflight),
            2 => Some(Self::MinLatency),
            _ => None,
        }
    }

    /// Returns whether the choice depends on the requests in flight. A count of them is a line that
    /// all CPUs write, so no other policy has it.
    #[inline]
    pub const fn counts_requests(self) -> bool {
        matches!(self, Self::MinInflight)
    }

    /// Chooses a path for a request of which another path was tried, or that was sent before: the
    /// index of a connected one that it has not tried, or `None`
    /// (`ECONNABORTED`). `last` is the path of this CPU's previous request, for round-robin; `None`
    /// at first. Of equal paths the first is chosen.
    #[inline]
    pub fn choose(
        self,
        last: Option<usize>,
        tried: &Tried,
        paths: impl Iterator<Item = PathLoad>,
    ) -> Option<usize> {
        // `enumerate` would add a counter with an overflow check that can panic.
        let mut usable = (0..PATHS_MAX)
            .zip(paths)
            .filter(|(i, p)| p.connected && !tried.contains(*i));
        match self {
            Self::RoundRobin => {
                let mut first = None;
                for (i, _) in usable {
                    if last.is_none_or(|l| i > l) {
                        return Some(i);
                    }
                    if first.is_none() {
                        first = Some(i);
                    }
                }
                first
            }
            Self::MinInflight => {
                let (mut best, p) = usable.next()?;
                let mut least = p.inflight;
                for (i, p) in usable {
                    if p.inflight < least {
                        (best, least) = (i, p.inflight);
                    }
                }
                Some(best)
            }
            Self::MinLatency => {
                let (mut best, p) = usable.next()?;
                let mut least = p.latency_ns.unwrap_or(u64::MAX);
                for (i, p) in usable {
                    let latency_ns = p.latency_ns.unwrap_or(u64::MAX);
                    if latency_ns < least {
                        (best, least) = (i, latency_ns);
                    }
                }
                Some(best)
            }
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "round-robin (RR: 0)",
            Self::MinInflight => "min-inflight (MI: 1)",
            Self::MinLatency => "min-latency (ML: 2)",
        })
    }
}
