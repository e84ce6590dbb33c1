// SPDX-License-Identifier: GPL-2.0

//! The tags of requests, by which a fragment tells to which one it belongs.
//!
//! A fragment that was late may be taken by the adapter just before the key of its queue pair
//! changes, and be looked at just after: rxe checks the key of a packet when it comes, and puts it
//! into a receive later. It must not be taken for one of the next request. So the requests of a
//! queue pair have tags in turn, and what is left of an earlier one is foreign.

/// The tags of the requests of one of `qps` queue pairs that receive data. Those of two of them
/// differ, so that a tag tells the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    qps: u16,
    next: u16,
}

impl Tags {
    /// Returns the tags of queue pair `qp_index`, which is less than `qps`, 1 to 4096.
    pub const fn new(qp_index: u16, qps: u16) -> Self {
        Self {
            qps,
            next: qp_index,
        }
    }

    /// Returns the tag of the next request. It comes again after at least 65536 / `qps` - 1
    /// others.
    pub fn take(&mut self) -> u16 {
        let tag = self.next;
        self.next = match tag.checked_add(self.qps) {
            Some(next) => next,
            None => Self::qp_index(tag, self.qps),
        };
        tag
    }

    /// Returns the queue pair of a tag, of `qps`; any tag has one, if there are any.
    pub fn qp_index(tag: u16, qps: u16) -> u16 {
        tag.checked_rem(qps).unwrap_or(0)
    }
}
