// SPDX-License-Identifier: GPL-2.0

//! Which sends ask for a completion, and how many may be on a send queue.

use super::SERVICE_QUEUE_DEPTH;

/// Returns how many sends there are to one completion: the queue depth, at most 512, at least 1.
#[inline]
pub const fn interval(queue_depth: u16) -> u32 {
    if queue_depth == 0 || queue_depth > SERVICE_QUEUE_DEPTH {
        SERVICE_QUEUE_DEPTH as u32
    } else {
        queue_depth as u32
    }
}

/// Returns the largest power of two that is not above [`interval`], less 1: a send asks for a
/// completion where its number has none of these bits, which takes no division.
#[inline]
pub const fn interval_mask(queue_depth: u16) -> u32 {
    // At least 1 and at most 512, so nothing is shifted out.
    let bits = u32::BITS - 1 - interval(queue_depth).leading_zeros();
    1u32.wrapping_shl(bits).wrapping_sub(1)
}

/// Counts the sends of one connection, heartbeats included, and picks those that ask for a
/// completion: each `interval`th.
///
/// The protocol counts from 1, so that the first completion comes one send early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signaller {
    left: u32,
    interval: u32,
}

impl Signaller {
    /// Starts counting for a connection of a session with this queue depth.
    pub const fn new(queue_depth: u16) -> Self {
        let interval = interval(queue_depth);
        Self {
            left: if interval > 1 { interval - 1 } else { 1 },
            interval,
        }
    }

    /// Counts one send; says whether it asks for a completion.
    #[inline]
    pub fn next_is_signalled(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        let signalled = self.left == 0;
        if signalled {
            self.left = self.interval;
        }
        signalled
    }

    /// Returns how many sends one completion stands for.
    #[inline]
    pub const fn interval(&self) -> u32 {
        self.interval
    }
}

/// Room on a server's send queue, in responses.
///
/// A response may be several work requests; the queue is sized so that as many responses fit as it
/// has entries for ([`QueueSizes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCredit {
    left: u32,
    max: u32,
}

impl SendCredit {
    /// All of a send queue is free.
    pub const fn new(max: u32) -> Self {
        Self { left: max, max }
    }

    /// Takes room for one response; `false` if there is none, and it must wait for a completion.
    #[inline]
    pub fn take(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// A signalled completion says that this and the `interval - 1` responses before it are done.
    #[inline]
    pub fn give(&mut self, interval: u32) {
        let left = self.left.saturating_add(interval);
        self.left = if left < self.max { left } else { self.max };
    }

    /// Returns for how many responses there is room.
    #[inline]
    pub const fn left(&self) -> u32 {
        self.left
    }
}

/// How long the queues of one connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Entries of the send queue.
    pub send: u32,
    /// Entries of the receive queue.
    pub recv: u32,
}

/// Entries of either queue of an admin connection: two for each message, and room for the
/// heartbeat and for draining.
const ADMIN_QUEUE: u32 = SERVICE_QUEUE_DEPTH as u32 * 2 + 2;

impl QueueSizes {
    /// The admin connection, on either side.
    pub const fn admin(max_qp_wr: u32) -> Self {
        Self {
            send: ADMIN_QUEUE,
            recv: ADMIN_QUEUE,
        }
        .at_most(max_qp_wr)
    }

    /// An IO connection of a client: register, write and invalidate for each request and one
    /// spare; answers of up to two receives.
    pub const fn client_io(queue_depth: u16, max_qp_wr: u32) -> Self {
        Self {
            send: queue_depth as u32 * 4 + 1,
            recv: queue_depth as u32 * 3 + 1,
        }
        .at_most(max_qp_wr)
    }

    /// An IO connection of a server: data, invalidation and answer for each response, and with
    /// `always_invalidate` the invalidation and registration of the chunk.
    pub const fn server_io(queue_depth: u16, always_invalidate: bool, max_qp_wr: u32) -> Self {
        let per_response = if always_invalidate { 5 } else { 3 };
        Self {
            send: queue_depth as u32 * per_response + 1,
            recv: queue_depth as u32 + 1,
        }
        .at_most(max_qp_wr)
    }

    /// Returns how many entries a completion queue for both needs.
    pub const fn completions(&self) -> u32 {
        self.send.saturating_add(self.recv)
    }

    const fn at_most(self, max: u32) -> Self {
        Self {
            send: if self.send < max { self.send } else { max },
            recv: if self.recv < max { self.recv } else { max },
        }
    }
}
