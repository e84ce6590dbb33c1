// SPDX-License-Identifier: GPL-2.0

//! Which sends ask for a completion, and how long the queues are.

use core::fmt;

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

/// As [`interval_mask`] for a client's IO connection: a completion each eighth of the queue depth,
/// so that few entries of the send queue are done without anybody knowing.
#[inline]
pub const fn client_mask(queue_depth: u16) -> u32 {
    if queue_depth < 8 {
        0
    } else {
        interval_mask(queue_depth / 8)
    }
}

/// How long a device's queues may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Work requests of a send or receive queue.
    pub work_requests: u32,
    /// Entries of a completion queue.
    pub completions: u32,
}

/// Which queue a device does not have long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// The send queue.
    Send(TooShort),
    /// The receive queue.
    Receive(TooShort),
    /// The completion queue.
    Completion(TooShort),
}

/// Lengths of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// The least that will do.
    pub needed: u32,
    /// The device's most.
    pub most: u32,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, TooShort { needed, most }) = match self {
            QueueError::Send(lengths) => ("send", lengths),
            QueueError::Receive(lengths) => ("receive", lengths),
            QueueError::Completion(lengths) => ("completion", lengths),
        };
        write!(
            f,
            "device's {queue} queues have {most} entries, the queue depth needs {needed}"
        )
    }
}

/// How long the queues of one connection are, without the entry for draining that each has besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Entries of the send queue.
    pub send: u32,
    /// Entries of the receive queue.
    pub recv: u32,
}

/// Entries of a queue that draining takes.
const DRAIN: u32 = 1;

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

/// Work requests of a client's message: registration, write, invalidation.
const REQUEST_WORK: u32 = 3;

/// Most work requests of a server's answer: data, invalidation of the client's key, answer. The
/// registration of a chunk goes with the answer to a write, which has no data.
const ANSWER_WORK: u32 = 3;

/// Answers that a server's send queue has room for at least: one, and a heartbeat.
const ANSWERS_MIN: u32 = 2;

/// Entries of an admin connection's send queue at least: a client's messages under way and those
/// that are done without anybody knowing.
const ADMIN_SENDS_MIN: u32 = (ADMIN_INTERVAL + 8) * REQUEST_WORK;

// They fit twice over.
const _: () = assert!(ADMIN_SENDS_MIN * 2 <= ADMIN_MESSAGES * 5);

impl QueueSizes {
    /// Returns the admin connection, on either side. Receives are posted in batches of `batch`, two
    /// of which come on top.
    pub fn admin(batch: u32, limits: QueueLimits) -> Result<Self, QueueError> {
        let wanted = Self {
            send: ADMIN_MESSAGES * 5 + 1,
            recv: ADMIN_RECEIVES.saturating_add(batch.saturating_mul(2)),
        };
        wanted.within(limits, ADMIN_SENDS_MIN)
    }

    /// Returns an IO connection of a client: invalidate, register and write for each request, and
    /// as much again for those that are done without anybody knowing ([`client_mask`]); answers of
    /// up to two receives.
    pub fn client_io(queue_depth: u16, limits: QueueLimits) -> Result<Self, QueueError> {
        let depth = u32::from(queue_depth);
        let wanted = Self {
            send: depth * 7 / 2 + 1,
            recv: depth * 3 + 1,
        };
        wanted.within(limits, (depth + client_mask(queue_depth)) * REQUEST_WORK)
    }

    /// Returns an IO connection of a server: data, invalidation and answer for each response, and
    /// with `always_invalidate` the invalidation and registration of the chunk. Receives as for
    /// [`Self::admin`]. On a device with shorter send queues answers wait for room earlier; what
    /// all requests may post at the same time, the invalidations, always has room.
    pub fn server_io(
        queue_depth: u16,
        always_invalidate: bool,
        batch: u32,
        limits: QueueLimits,
    ) -> Result<Self, QueueError> {
        let per_response = if always_invalidate { 5 } else { 3 };
        let wanted = Self {
            send: u32::from(queue_depth) * per_response + 1,
            recv: (u32::from(queue_depth) + 1).saturating_add(batch.saturating_mul(2)),
        };
        let revocations = Self::revocations(queue_depth, always_invalidate);
        let least = revocations + ANSWERS_MIN * ANSWER_WORK;
        wanted.fitted().max_send(least).within(limits, least)
    }

    /// Returns how many answers may be on the send queue of a server's connection at a time.
    pub fn answers(&self, queue_depth: u16, always_invalidate: bool) -> u32 {
        let revocations = Self::revocations(queue_depth, always_invalidate);
        (self.send.saturating_sub(revocations) / ANSWER_WORK).max(1)
    }

    /// Invalidations that requests may have posted at a time.
    fn revocations(queue_depth: u16, always_invalidate: bool) -> u32 {
        if always_invalidate {
            queue_depth.into()
        } else {
            0
        }
    }

    /// Returns the same with a send queue of at least `least`.
    fn max_send(self, least: u32) -> Self {
        Self {
            send: self.send.max(least),
            ..self
        }
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
    const fn completions(&self) -> u32 {
        self.send.saturating_add(self.recv)
    }

    /// Shortens the send queue, down to `least_send`, until a device with these limits has both
    /// queues, and a completion queue for both, with what draining takes.
    fn within(self, limits: QueueLimits, least_send: u32) -> Result<Self, QueueError> {
        let most = limits.work_requests;
        let needed = self.recv.saturating_add(DRAIN);
        if needed > most {
            return Err(QueueError::Receive(TooShort { needed, most }));
        }
        let send = self.send.min(most.saturating_sub(DRAIN));
        if send < least_send {
            let needed = least_send.saturating_add(DRAIN);
            return Err(QueueError::Send(TooShort { needed, most }));
        }
        let most = limits.completions;
        let others = self.recv.saturating_add(2 * DRAIN);
        let send = send.min(most.saturating_sub(others));
        if send < least_send {
            let needed = least_send.saturating_add(others);
            return Err(QueueError::Completion(TooShort { needed, most }));
        }
        Ok(Self { send, ..self })
    }
}
