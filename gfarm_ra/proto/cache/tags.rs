// SPDX-License-Identifier: GPL-2.0

//! The tags of requests, by which a fragment tells to which one it belongs.
//!
//! A fragment that was late may be taken by the adapter just before the key of its queue pair
//! changes, and be looked at just after: rxe checks the key of a packet when it comes, and puts it
//! into a receive later. It must not be taken for one of the next request. So the requests of a
//! queue pair have tags in turn, and what is left of an earlier one is foreign.

/// The tags of the requests of one of `lanes` queue pairs that receive data. Those of two of them
/// differ, so that a tag tells the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    lanes: u16,
    next: u16,
}

impl Tags {
    /// Begins with those of queue pair `lane`, which is less than `lanes`, 1 to 4096.
    pub const fn new(lane: u16, lanes: u16) -> Self {
        Self { lanes, next: lane }
    }

    /// Returns the tag of the next request. It comes again after at least 65536 / `lanes` - 1
    /// others.
    pub fn take(&mut self) -> u16 {
        let tag = self.next;
        self.next = match tag.checked_add(self.lanes) {
            Some(next) => next,
            None => Self::lane(tag, self.lanes),
        };
        tag
    }

    /// Returns the queue pair of a tag, of `lanes`; any tag has one, if there are any.
    pub fn lane(tag: u16, lanes: u16) -> u16 {
        tag.checked_rem(lanes).unwrap_or(0)
    }
}
