// SPDX-License-Identifier: GPL-2.0

//! How a session's chunk ids are shared out between admin messages and IO.
//!
//! A chunk id doubles as the tag of the request that uses it, so the ids of admin messages (open,
//! close) and those of IO are two ranges that do not meet: opening a device never waits for IO.

use core::ops::Range;

/// Most ids that are kept for admin messages.
const ADMIN_MAX: u16 = 8;

/// The two ranges of a session's chunk ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    queue_depth: u16,
    admin: u16,
}

impl Partition {
    /// Shares out `queue_depth` ids: `min(8, queue_depth / 2)` for admin messages, the rest for IO.
    pub const fn new(queue_depth: u16) -> Self {
        let half = queue_depth / 2;
        Self {
            queue_depth,
            admin: if half < ADMIN_MAX { half } else { ADMIN_MAX },
        }
    }

    /// Says whether the only id serves both: a session of one chunk. The caller waits its turn.
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

    /// Returns the ids for IO: `admin..queue_depth`.
    #[inline]
    pub const fn io_ids(&self) -> Range<u16> {
        self.admin..self.queue_depth
    }

    /// Returns how many ids IO has: the depth of the block device's queues.
    #[inline]
    pub const fn io_depth(&self) -> u16 {
        self.queue_depth.saturating_sub(self.admin)
    }

    /// Returns the id of the `tag`th IO, or `None` if there are not that many.
    #[inline]
    pub const fn io_id(&self, tag: u32) -> Option<u16> {
        if tag < self.io_depth() as u32 {
            // CAST: Below queue_depth, a u16. The sum is below it, too.
            Some(self.admin.wrapping_add(tag as u16))
        } else {
            None
        }
    }

    /// Returns which IO has this id, or `None` for an admin id; the opposite of
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
