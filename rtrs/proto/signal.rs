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

/// As [`interval_mask`] for a client's IO connection: a completion each eighth of the queue depth, so
/// that few entries of the send queue are done without anybody knowing.
#[inline]
pub const fn client_mask(queue_depth: u16) -> u32 {
    if queue_depth < 8 {
        0
    } else {
        interval_mask(queue_depth / 8)
    }
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

/// Messages that a server can answer on an admin connection at a time. Clients of ours have 8 under
/// way; of a client that has more the answers wait for room, as they do on every connection.
const ADMIN_MESSAGES: u32 = 48;

/// Messages that either side takes on an admin connection without having handled one: answers of up
/// to two receives, and heartbeats. A peer that sends more repeats them (RNR).
///
/// Such queues exist once a path, so their length is memory and nothing else: with the session's
/// depth, which is what the C driver takes, they were a quarter of what a path needs beside its
/// chunks.
pub const ADMIN_RECEIVES: u32 = 128;

/// Sends to one completion on a client's admin connection.
const ADMIN_INTERVAL: u32 = 32;

/// [`interval_mask`] of a client's admin connection.
pub const ADMIN_MASK: u32 = ADMIN_INTERVAL - 1;

// A client's messages under way and those that are done without anybody knowing fit twice over,
// each with a registration, a write and an invalidation.
const _: () = assert!((ADMIN_INTERVAL + 8) * 3 * 2 <= ADMIN_MESSAGES * 5);

impl QueueSizes {
    /// The admin connection, on either side. Receives are posted in batches of `batch`, two of which
    /// come on top.
    pub const fn admin(batch: u32, max_qp_wr: u32) -> Self {
        Self {
            send: ADMIN_MESSAGES * 5 + 1,
            recv: ADMIN_RECEIVES.saturating_add(batch.saturating_mul(2)),
        }
        .at_most(max_qp_wr)
    }

    /// An IO connection of a client: invalidate, register and write for each request, and as much
    /// again for those that are done without anybody knowing ([`client_mask`]); answers of up to two
    /// receives.
    pub const fn client_io(queue_depth: u16, max_qp_wr: u32) -> Self {
        Self {
            send: queue_depth as u32 * 7 / 2 + 1,
            recv: queue_depth as u32 * 3 + 1,
        }
        .at_most(max_qp_wr)
    }

    /// An IO connection of a server: data, invalidation and answer for each response, and with
    /// `always_invalidate` the invalidation and registration of the chunk. Receives as for
    /// [`Self::admin`].
    pub const fn server_io(
        queue_depth: u16,
        always_invalidate: bool,
        batch: u32,
        max_qp_wr: u32,
    ) -> Self {
        let per_response = if always_invalidate { 5 } else { 3 };
        Self {
            send: queue_depth as u32 * per_response + 1,
            recv: (queue_depth as u32 + 1).saturating_add(batch.saturating_mul(2)),
        }
        .fitted()
        .at_most(max_qp_wr)
    }

    /// Leaves out a few entries of the send queue, a 16th at most, if one completion queue for both
    /// is half as long then: its length is rounded up to a power of two. An answer that finds no
    /// room waits.
    const fn fitted(self) -> Self {
        // Two for draining, and the one that drivers keep free.
        let entries = self.completions().saturating_add(3);
        let half = 1u32.wrapping_shl(31u32.wrapping_sub(entries.leading_zeros()));
        let over = entries.wrapping_sub(half);
        let send = if over <= self.send / 16 {
            self.send.wrapping_sub(over)
        } else {
            self.send
        };
        Self { send, ..self }
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
