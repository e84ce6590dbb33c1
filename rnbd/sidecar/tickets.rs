// SPDX-License-Identifier: GPL-2.0

//! Sets of requests in flight.

/// The number of a request in flight, below [`TICKETS_MAX`].
pub type Ticket = usize;

/// The maximum number of requests in flight.
pub const TICKETS_MAX: usize = u64::BITS as usize;

/// A set of requests in flight; at first it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tickets(u64);

impl Tickets {
    /// The empty set.
    pub const NONE: Self = Self(0);

    fn bit(ticket: Ticket) -> u64 {
        let shift = u32::try_from(ticket).ok();
        shift.and_then(|shift| 1u64.checked_shl(shift)).unwrap_or(0)
    }

    /// Returns whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of requests.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Adds a request.
    pub fn insert(&mut self, ticket: Ticket) {
        self.0 |= Self::bit(ticket);
    }

    /// Removes a request.
    pub fn remove(&mut self, ticket: Ticket) {
        self.0 &= !Self::bit(ticket);
    }

    /// Returns the lowest number that is not in the set, which may be [`TICKETS_MAX`].
    pub const fn first_free(self) -> Ticket {
        // CAST: widening; it is 64 at most.
        self.0.trailing_ones() as Ticket
    }

    /// Returns the requests that are in one of the sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the requests, the lowest number first.
    pub fn iter(self) -> impl Iterator<Item = Ticket> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let lowest = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            // CAST: widening; it is 64 at most.
            (lowest < u64::BITS).then_some(lowest as Ticket)
        })
    }
}
