// SPDX-License-Identifier: GPL-2.0

//! The choice among the gfsds that have a file.

use ferro_proto::errno::Errno;

use super::attr::ReplicaHost;

/// A gfsd, by the number that the driver gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostId(pub u32);

/// The rank of a gfsd; the smaller one is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The user was refused a moment ago, since this read has begun to fail: each other gfsd is
    /// preferred.
    is_refusing: bool,
    /// The last read of this file from it failed, or it has refused the user before that: the key
    /// may be another one by now.
    pub has_failed: bool,
    /// The gfsd does not work for other files either.
    pub is_suspect: bool,
    /// gfmd believes that it is down.
    is_down: bool,
    /// The gfsd is on another machine.
    pub is_remote: bool,
    /// The load of a CPU, times 2048.
    load: u32,
    /// The error with which it has refused the user since this read has begun to fail.
    refusal: Option<Errno>,
}

impl Rank {
    /// Returns the rank of a gfsd that has neither failed nor is suspect.
    pub fn new(host: &ReplicaHost<'_>, is_remote: bool) -> Self {
        let load = host.load.checked_div(host.ncpu).unwrap_or(host.load);
        Self {
            is_refusing: false,
            has_failed: false,
            is_suspect: false,
            is_down: !host.is_available,
            is_remote,
            // An unknown load is a high one.
            load: if host.has_load { load } else { u32::MAX },
            refusal: None,
        }
    }

    /// Takes note of what is known of the gfsd, for a read that fails since `since_ms`. A refusal
    /// does not count while there is a connection that works, as other files read by it.
    pub fn note(
        &mut self,
        health: &Health,
        is_connected: bool,
        since_ms: Option<u64>,
        now_ms: u64,
    ) {
        self.is_suspect = health.is_suspect(now_ms);
        self.refusal = health.refusal_since(since_ms).filter(|_| !is_connected);
        self.has_failed = self.refusal.is_some();
        self.is_refusing = self.has_failed && health.is_refusing(now_ms);
    }
}

/// All gfsds that were offered have refused the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllRefuse {
    /// The error of the best one.
    pub errno: Errno,
    /// The best one, if it was not asked a moment ago.
    pub may_accept: Option<HostId>,
}

/// The best of the gfsds that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Choice {
    best: Option<(Rank, HostId)>,
    /// One was offered that has not refused the user.
    has_other: bool,
    /// The number of gfsds with the rank of the best one.
    equals: u32,
}

impl Choice {
    /// No gfsd was offered.
    pub const NONE: Self = Self {
        best: None,
        has_other: false,
        equals: 0,
    };

    /// Offers a gfsd. Each of several with the best rank is chosen with the same probability, by
    /// any number `random`: gfmd's loads are minutes old, and many clients see the same ones.
    pub fn offer(&mut self, host: HostId, rank: Rank, random: u32) {
        self.has_other |= rank.refusal.is_none();
        let order = self.best.map(|(best, _)| rank.cmp(&best));
        match order {
            Some(core::cmp::Ordering::Greater) => return,
            Some(core::cmp::Ordering::Equal) => self.equals = self.equals.saturating_add(1),
            _ => self.equals = 1,
        }
        if random.checked_rem(self.equals) == Some(0) {
            self.best = Some((rank, host));
        }
    }

    /// Returns what is left if all have refused the user since the read has begun to fail, however
    /// long ago that was.
    pub fn refusal(&self) -> Option<AllRefuse> {
        let (rank, host) = self.best.filter(|_| !self.has_other)?;
        rank.refusal.map(|errno| AllRefuse {
            errno,
            may_accept: (!rank.is_refusing).then_some(host),
        })
    }

    /// Returns the best one.
    pub fn get(&self) -> Option<HostId> {
        self.best.map(|(_, host)| host)
    }
}

/// The delay before a gfsd that does not work is tried first again, in milliseconds.
const SUSPECT_MS: u64 = 10_000;

/// The connection to a gfsd that a file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// The one that the fewest files use.
    Take,
    /// A new one.
    Make,
    /// The first one that is made or given back.
    Wait,
}

/// Whether a gfsd works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Health {
    suspect_until_ms: u64,
    /// The time at which it has refused the user, in milliseconds, and the error, unless it has
    /// accepted the user since. A mount is one user (decision 0024), so this counts for all files.
    refusal: Option<(u64, Errno)>,
}

impl Health {
    /// A connection or a request failed at `now_ms`; `refusal` is the error if it was refused to
    /// the user.
    pub fn failed(&mut self, now_ms: u64, refusal: Option<Errno>) {
        self.suspect_until_ms = now_ms.saturating_add(SUSPECT_MS);
        self.refusal = refusal.map(|errno| (now_ms, errno)).or(self.refusal);
    }

    /// The user was accepted, or has another key.
    pub fn accepted(&mut self) {
        self.refusal = None;
    }

    /// A request was answered, perhaps by a connection that is older than a refusal.
    pub fn answered(&mut self) {
        self.suspect_until_ms = 0;
    }

    /// Returns the error with which it has refused the user since a time, if anything has failed
    /// since then.
    pub fn refusal_since(&self, since_ms: Option<u64>) -> Option<Errno> {
        let (at_ms, errno) = self.refusal?;
        since_ms
            .filter(|since_ms| *since_ms <= at_ms)
            .map(|_| errno)
    }

    /// Returns whether it has refused the user a moment ago.
    pub fn is_refusing(&self, now_ms: u64) -> bool {
        self.refusal
            .is_some_and(|(at_ms, _)| now_ms < at_ms.saturating_add(SUSPECT_MS))
    }

    /// Decides which connection a file gets. `users` is the number of files that use the one which
    /// the fewest use, if there is one; `has_room` tells whether another one may be made. Where
    /// the gfsd refuses the user none is made as long as one is left from before.
    pub fn connecting(&self, users: Option<u32>, has_room: bool, now_ms: u64) -> Connecting {
        match users {
            Some(users) if users == 0 || !has_room || self.is_refusing(now_ms) => Connecting::Take,
            _ if has_room => Connecting::Make,
            _ => Connecting::Wait,
        }
    }

    /// Returns whether another gfsd is preferred at `now_ms`.
    pub const fn is_suspect(&self, now_ms: u64) -> bool {
        now_ms < self.suspect_until_ms
    }
}
