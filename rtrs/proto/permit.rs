// SPDX-License-Identifier: GPL-2.0

//! The division of a session's chunk ids between admin messages and IO.
//!
//! A chunk id is also the tag of the request that uses it, so the ids of admin messages (open,
//! close) and those of IO are two disjoint ranges: opening a device never waits for IO.

use core::ops::Range;

/// The maximum number of ids for admin messages.
pub const ADMIN_MAX: u16 = 8;

/// A kind of admin messages, by what the answer may wait for at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerWaits {
    /// OPEN: for a device that may not answer.
    ForDevice,
    /// CLOSE: for requests that may not end.
    ForRequests,
    /// All others: for nothing.
    ForNothing,
}

/// The two ranges of a session's chunk ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    queue_depth: u16,
    admin: u16,
}

impl Partition {
    /// Divides `queue_depth` ids: `min(8, queue_depth / 2)` for admin messages, the rest for IO.
    pub const fn new(queue_depth: u16) -> Self {
        let half = queue_depth / 2;
        Self {
            queue_depth,
            admin: if half < ADMIN_MAX { half } else { ADMIN_MAX },
        }
    }

    /// Converts a stored number to the partition.
    #[inline(always)]
    pub const fn from_word(word: u32) -> Self {
        Self {
            // CAST: the two halves.
            queue_depth: (word >> 16) as u16,
            admin: word as u16,
        }
    }

    /// Returns the number.
    pub const fn to_word(self) -> u32 {
        (self.queue_depth as u32) << 16 | self.admin as u32
    }

    /// Returns the number of ids.
    #[inline(always)]
    pub const fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// Returns whether admin messages and IO share the only id of a session of one chunk. The
    /// caller then waits for it.
    #[inline]
    pub const fn is_shared(&self) -> bool {
        self.admin == 0
    }

    /// Returns the ids for admin messages: `0..admin`, or the one shared id.
    #[inline]
    pub const fn admin_ids(&self) -> Range<u16> {
        if self.is_shared() {
            0..self.queue_depth
        } else {
            0..self.admin
        }
    }

    /// Returns the end of the ids for admin messages of one kind. Those that may wait for long
    /// leave one to each of the others, if there are as many: a device that does not answer keeps
    /// no device from being closed, and no path from coming back.
    #[inline]
    pub const fn admin_ids_end(&self, waits: AnswerWaits) -> u16 {
        let all = self.admin_ids().end;
        let left = match waits {
            AnswerWaits::ForDevice => all.saturating_sub(2),
            AnswerWaits::ForRequests => all.saturating_sub(1),
            AnswerWaits::ForNothing => all,
        };
        if left == 0 && all != 0 {
            1
        } else {
            left
        }
    }

    /// Returns the ids for IO: `admin..queue_depth`.
    #[inline]
    pub const fn io_ids(&self) -> Range<u16> {
        self.admin..self.queue_depth
    }

    /// Returns the number of ids for IO, which is the depth of the block device's queues.
    #[inline]
    pub const fn io_depth(&self) -> u16 {
        self.queue_depth.saturating_sub(self.admin)
    }

    /// Returns the id of the `tag`th IO, or `None` if there are not that many.
    #[inline(always)]
    pub const fn io_id(&self, tag: u32) -> Option<u16> {
        let id = tag.saturating_add(self.admin as u32);
        if id < self.queue_depth as u32 {
            // CAST: below queue_depth, a u16.
            Some(id as u16)
        } else {
            None
        }
    }

    /// Returns the IO tag of this id, or `None` for an admin id; the inverse of
    /// [`io_id`](Self::io_id).
    #[inline]
    pub const fn tag(&self, id: u16) -> Option<u32> {
        if id < self.queue_depth && id >= self.admin {
            Some((id as u32).wrapping_sub(self.admin as u32))
        } else {
            None
        }
    }
}
