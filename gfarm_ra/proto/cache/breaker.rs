// SPDX-License-Identifier: GPL-2.0

//! Whether other nodes are asked at all: not while this one is cut off from them.
//!
//! A node that does not answer costs a read its silences, and the next read finds out about another
//! one. If all are silent the fault is the network's, and the file servers are asked for all:
//!
//! ```text
//!             silences in a row          none answers
//!    joined ---------------------> doubt ------------> cut <---- the port is down,
//!      ^  ^         any answer       |                  |          the device has failed
//!      |  '-------------------------'                  |
//!      '---------- an answer, when the pause is over ---'
//! ```
//!
//! In doubt a few members are probed at once, so that dead owners are not taken for a dead network.
//! Members are probed all the time, and so one answers as soon as the network is there again. It is
//! not there again on a device that has failed: that is removed, and the node with it.
//!
//! Answers to probes come to another queue pair than replies, and say nothing of that. So silences
//! with few replies in between cut the node off too, also if probes are answered.

use core::fmt;

/// The number of silences in a row, of any nodes, after which members are probed.
pub const SILENCES_MAX: u8 = 2;

/// The time for which their answers are waited for, in microseconds.
pub const DOUBT_US: u64 = 200_000;

/// The time for which no node is asked at least, in microseconds. It doubles each time when nodes
/// that have answered are silent again soon.
pub const PAUSE_US_MIN: u64 = 100_000;

/// The times of silences without replies after which no node is asked, also if probes are answered.
/// A reply makes up for two silences: who is known by half of the others only is not cut off from
/// those. Where many reads wait there are many silences at a time, and one reply for them all makes
/// up for none of these times.
pub const FRUITLESS_MAX: u8 = 8;
const REPLY_WORTH: u8 = 2;

/// The silences that are left when nodes are asked again: two more are enough then.
const FRUITLESS_LEFT: u8 = FRUITLESS_MAX - 2;

/// The time in which silences count once, in microseconds: reads that ask one node which is dead
/// find out together.
pub const TOGETHER_US: u64 = 20_000;

/// The number of doublings: to about half a minute.
const DOUBLINGS_MAX: u8 = 8;

/// Time that counts as soon, in microseconds, beside twice the last pause; silences take a part.
const SOON_US: u64 = 2_000_000;

/// Reasons for which no node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// The device has failed.
    Device,
    /// The port is down, or is not any more what the mount asks for.
    Port,
    /// Nodes have been silent, and none has answered since.
    Silence,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "the RDMA device has failed",
            Self::Port => "the RDMA port is down, or has lost its address, partition or MTU",
            Self::Silence => "none answers, look at the RDMA network of this machine",
        })
    }
}

/// Change that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// [`Members::doubt`](super::members::Members::doubt) is to be called.
    Doubted,
    /// No node is asked from now on, and those that are asked are not waited for.
    Cut(Cut),
    /// Nodes are asked again.
    Joined,
    /// An answer has come by the port that is down, as it seems: its state is to be looked at, and
    /// told by [`Breaker::port`].
    PortDoubted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nodes are asked, with so many silences since the last answer.
    Joined(u8),
    /// Nodes are asked, and one has to answer before this time.
    Doubt(u64),
    /// Nodes are not asked, until one answers at this time or later.
    Cut(u64),
}

/// Whether nodes are asked. All times are in microseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    has_failed: bool,
    is_port_down: bool,
    state: State,
    doublings: u8,
    /// End of the time in which a silence counts as soon.
    soon_us: u64,
    /// The silences for which no replies have made up, and the times at which there were some.
    unpaid: u8,
    fruitless: u8,
    /// The time at which a silence may be counted again.
    apart_us: u64,
}

impl Breaker {
    /// Nodes are asked.
    pub const NEW: Self = Self {
        has_failed: false,
        is_port_down: false,
        state: State::Joined(0),
        doublings: 0,
        soon_us: 0,
        unpaid: 0,
        fruitless: 0,
        apart_us: 0,
    };

    /// Returns why no node is asked; `None` if they are.
    pub const fn cut(&self) -> Option<Cut> {
        match (self.has_failed, self.is_port_down, self.state) {
            (true, _, _) => Some(Cut::Device),
            (false, true, _) => Some(Cut::Port),
            (false, false, State::Cut(_)) => Some(Cut::Silence),
            (false, false, State::Joined(_) | State::Doubt(_)) => None,
        }
    }

    /// Looks whether a doubt has come to its end, before a node is asked.
    pub fn look(&mut self, now_us: u64) -> Option<Change> {
        match self.state {
            State::Doubt(until_us) if now_us >= until_us => self.part(now_us),
            _ => None,
        }
    }

    /// Has no node asked from now on.
    fn part(&mut self, now_us: u64) -> Option<Change> {
        let before = self.cut();
        self.doublings = match now_us < self.soon_us {
            true => self.doublings.saturating_add(1).min(DOUBLINGS_MAX),
            false => 0,
        };
        (self.unpaid, self.fruitless) = (0, self.fruitless.min(FRUITLESS_LEFT));
        self.state = State::Cut(now_us.saturating_add(self.pause_us()));
        before.is_none().then_some(Change::Cut(Cut::Silence))
    }

    fn pause_us(&self) -> u64 {
        // At most 8 doublings: no bit is lost.
        PAUSE_US_MIN.wrapping_shl(self.doublings.into())
    }

    /// Takes note that a node that was asked has not answered in time.
    pub fn silent(&mut self, now_us: u64) -> Option<Change> {
        if matches!(self.state, State::Cut(_)) {
            return None;
        }
        self.unpaid = self.unpaid.saturating_add(1);
        if now_us >= self.apart_us {
            self.apart_us = now_us.saturating_add(TOGETHER_US);
            self.fruitless = self.fruitless.saturating_add(1);
        }
        if self.fruitless >= FRUITLESS_MAX {
            return self.part(now_us);
        }
        let State::Joined(silences) = self.state else {
            return self.look(now_us);
        };
        let silences = silences.saturating_add(1);
        if silences < SILENCES_MAX {
            self.state = State::Joined(silences);
            return None;
        }
        self.state = State::Doubt(now_us.saturating_add(DOUBT_US));
        Some(Change::Doubted)
    }

    /// Takes note of a reply of any node.
    pub fn replied(&mut self, now_us: u64) -> Option<Change> {
        self.unpaid = self.unpaid.saturating_sub(REPLY_WORTH);
        if self.unpaid == 0 {
            self.fruitless = self.fruitless.saturating_sub(REPLY_WORTH);
        }
        self.answered(now_us)
    }

    /// Takes note of an answer of any node to a probe.
    pub fn answered(&mut self, now_us: u64) -> Option<Change> {
        if let State::Cut(until_us) = self.state {
            if now_us < until_us {
                return None;
            }
            let soon_us = SOON_US.saturating_add(self.pause_us().saturating_mul(2));
            self.soon_us = now_us.saturating_add(soon_us);
        }
        let before = self.cut();
        self.state = State::Joined(0);
        match before? {
            Cut::Silence => Some(Change::Joined),
            // It may have come before the port went down.
            Cut::Port => Some(Change::PortDoubted),
            Cut::Device => None,
        }
    }

    /// Takes note that the device has failed, for good.
    pub fn device_failed(&mut self) -> Option<Change> {
        let before = self.cut();
        self.has_failed = true;
        before.is_none().then_some(Change::Cut(Cut::Device))
    }

    /// Takes note of the state of the port, as the device has it: what tells of its changes may be
    /// lost, or overtaken.
    pub fn port(&mut self, is_down: bool) -> Option<Change> {
        let before = self.cut();
        self.is_port_down = is_down;
        match (before, self.cut()) {
            (None, Some(cut)) => Some(Change::Cut(cut)),
            (Some(_), None) => Some(Change::Joined),
            _ => None,
        }
    }
}
