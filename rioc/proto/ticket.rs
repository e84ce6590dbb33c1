// SPDX-License-Identifier: GPL-2.0

//! Operations that are sent again: each is carried out once.
//!
//! A client has *lanes*, as many as it has operations in flight at most, and each operation that
//! changes something is the next one of its lane. A lane is used again when its operation was
//! answered, or given up; so the server keeps one outcome for each lane, and knows an operation
//! that it has carried out before, one that is late, and one that is new.

/// The lanes of a client at most.
pub const LANES_MAX: u16 = 64;

const LANE_BITS: u32 = 16;

/// The number of an operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The lane.
    lane: u16,
    /// The number in the lane: the first operation has 1, the next one a higher one.
    sequence: u64,
}

impl Ticket {
    /// The highest number in a lane.
    pub const SEQUENCE_MAX: u64 = u64::MAX >> LANE_BITS;

    /// Makes one; `None` if there is no such number.
    pub const fn new(lane: u16, sequence: u64) -> Option<Self> {
        if sequence == 0 || sequence > Self::SEQUENCE_MAX {
            return None;
        }
        Some(Self { lane, sequence })
    }

    /// Returns that of a word of a message; `None` if there is no such number.
    pub const fn from_word(word: u64) -> Option<Self> {
        // CAST: The low bits.
        Self::new(word as u16, word >> LANE_BITS)
    }

    /// Returns the word of a message.
    pub const fn word(self) -> u64 {
        self.sequence << LANE_BITS | self.lane as u64
    }

    /// Returns the lane.
    pub const fn lane(self) -> u16 {
        self.lane
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The error number, positive; 0 of one that was carried out.
    pub errno: u16,
    /// The lease that it has taken; 0 of others.
    pub lease: u32,
}

/// The last operation of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The number of it; 0 before the first one.
    sequence: u64,
    /// `None` while it is carried out.
    outcome: Option<Outcome>,
    /// The slot that a log has for it.
    slot: Option<u32>,
}

impl Lane {
    /// The lane of no operation yet.
    pub const UNUSED: Self = Self {
        sequence: 0,
        outcome: None,
        slot: None,
    };
}

/// The state of an operation that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A new one, to be carried out.
    New,
    /// One that was carried out: it is answered with the same.
    Done(Outcome),
    /// One that is being carried out, or the one before in its lane is: it waits for that.
    Wait,
    /// A copy of one that its client has given up, or knows to be answered: it is dropped.
    Late,
    /// The client has no such lane.
    NoLane,
}

/// The lanes of a client.
#[derive(Clone, Debug)]
pub struct Tickets<S>(S);

impl<S: AsMut<[Lane]>> Tickets<S> {
    /// Begins without an operation in any lane. `lanes` has as many as the client may have.
    pub fn new(mut lanes: S) -> Self {
        lanes.as_mut().fill(Lane::UNUSED);
        Self(lanes)
    }

    fn lane(&mut self, ticket: Ticket) -> Option<&mut Lane> {
        self.0.as_mut().get_mut(usize::from(ticket.lane))
    }

    /// A log has this slot for a lane, with the operation that was carried out before, if one was.
    /// Returns whether there is such a lane, without one.
    pub fn keep(&mut self, number: u16, slot: u32, before: Option<Ticket>) -> bool {
        let lane = self.0.as_mut().get_mut(usize::from(number));
        let Some(lane) = lane.filter(|lane| lane.slot.is_none()) else {
            return false;
        };
        lane.slot = Some(slot);
        if let Some(before) = before {
            (lane.sequence, lane.outcome) = (before.sequence, Some(Outcome::default()));
        }
        true
    }

    /// Returns the slot of a lane; `None` if it has none.
    pub fn slot(&mut self, lane: u16) -> Option<u32> {
        self.0.as_mut().get(usize::from(lane))?.slot
    }

    /// Returns how many lanes there are.
    pub fn count(&mut self) -> u16 {
        let count = u16::try_from(self.0.as_mut().len());
        count.map_or(LANES_MAX, |count| count.min(LANES_MAX))
    }

    /// Looks at an operation that has come. A new one is carried out from now on.
    pub fn begin(&mut self, ticket: Ticket) -> Found {
        let Some(lane) = self.lane(ticket) else {
            return Found::NoLane;
        };
        let is_idle = lane.sequence == 0 || lane.outcome.is_some();
        match (ticket.sequence.cmp(&lane.sequence), lane.outcome) {
            (core::cmp::Ordering::Less, _) => Found::Late,
            (core::cmp::Ordering::Equal, Some(outcome)) => Found::Done(outcome),
            (core::cmp::Ordering::Greater, _) if is_idle => {
                (lane.sequence, lane.outcome) = (ticket.sequence, None);
                Found::New
            }
            _ => Found::Wait,
        }
    }

    /// An operation that was new has ended. One that never was is left.
    pub fn end(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some(lane) = self.lane(ticket) {
            if lane.sequence == ticket.sequence && lane.outcome.is_none() {
                lane.outcome = Some(outcome);
            }
        }
    }
}
