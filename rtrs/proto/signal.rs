// SPDX-License-Identifier: GPL-2.0

//! Selective signaling, and the lengths of the queues.

use core::fmt;

use super::SERVICE_QUEUE_DEPTH;

/// Returns the number of sends per completion: the queue depth, at most 512, at least 1.
#[inline]
pub const fn interval(queue_depth: u16) -> u32 {
    if queue_depth == 0 || queue_depth > SERVICE_QUEUE_DEPTH {
        SERVICE_QUEUE_DEPTH as u32
    } else {
        queue_depth as u32
    }
}

/// Returns the largest power of two that is not above [`interval`], minus 1: a send is signaled if
/// its number has none of these bits, which needs no division.
#[inline]
pub const fn interval_mask(queue_depth: u16) -> u32 {
    // At least 1 and at most 512, so nothing is shifted out.
    let bits = u32::BITS - 1 - interval(queue_depth).leading_zeros();
    1u32.wrapping_shl(bits).wrapping_sub(1)
}

/// Returns the mask as [`interval_mask`] for a client's IO connection: a completion per eighth of
/// the queue depth, so that few entries of the send queue are executed but not yet reported as
/// complete.
#[inline]
pub const fn client_mask(queue_depth: u16) -> u32 {
    if queue_depth < 8 {
        0
    } else {
        interval_mask(queue_depth / 8)
    }
}

/// The maximum lengths of a device's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The maximum number of work requests of a send or receive queue.
    pub work_requests: u32,
    /// The maximum number of entries of a completion queue.
    pub completions: u32,
}

/// The queue for which the device's limit is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// The send queue.
    Send(TooShort),
    /// The receive queue.
    Receive(TooShort),
    /// The completion queue.
    Completion(TooShort),
}

/// The lengths of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// The minimum length required.
    pub needed: u32,
    /// The device's maximum.
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

/// The lengths of the queues of one connection, without the additional entry for draining of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// The number of entries of the send queue.
    pub send: u32,
    /// The number of entries of the receive queue.
    pub recv: u32,
}

/// The number of entries of a queue for draining.
const DRAIN: u32 = 1;

/// The number of messages that a server can answer on an admin connection at a time. This client
/// has up to 8 in flight; the answers to a client with more wait for send queue entries, as on
/// every connection.
const ADMIN_MESSAGES: u32 = 48;

/// The number of receives on an admin connection: answers of up to two receives, and heartbeats. A
/// peer that sends more messages than were handled repeats them (RNR).
///
/// A path has one such queue, whose length only costs memory: with the session's depth, as in the C
/// driver, it would be a quarter of a path's memory without the chunks.
pub const ADMIN_RECEIVES: u32 = 128;

/// The number of sends per completion on a client's admin connection.
const ADMIN_INTERVAL: u32 = 32;

/// The [`interval_mask`] of a client's admin connection.
pub const ADMIN_MASK: u32 = ADMIN_INTERVAL - 1;

/// The number of work requests of a client's message: registration, write, invalidation.
const REQUEST_WORK: u32 = 3;

/// The maximum number of work requests of a server's answer: data, invalidation of the client's
/// key, answer. The registration of a chunk is part of the answer to a write, which has no data.
const ANSWER_WORK: u32 = 3;

/// The minimum number of answers that fit a server's send queue: one, and a heartbeat.
const ANSWERS_MIN: u32 = 2;

/// The minimum number of entries of an admin connection's send queue: a client's messages in
/// flight, and those executed but not yet reported as complete.
const ADMIN_SENDS_MIN: u32 = (ADMIN_INTERVAL + 8) * REQUEST_WORK;

// The entries suffice twice.
const _: () = assert!(ADMIN_SENDS_MIN * 2 <= ADMIN_MESSAGES * 5);

impl QueueSizes {
    /// Returns the sizes of an admin connection, on either side. Receives are posted in batches of
    /// `batch`, two of which are added.
    pub fn admin(batch: u32, limits: QueueLimits) -> Result<Self, QueueError> {
        let wanted = Self {
            send: ADMIN_MESSAGES * 5 + 1,
            recv: ADMIN_RECEIVES.saturating_add(batch.saturating_mul(2)),
        };
        wanted.within(limits, ADMIN_SENDS_MIN)
    }

    /// Returns the sizes of a client's IO connection: invalidate, register and write for each
    /// request, and the same again for requests executed but not yet reported as complete
    /// ([`client_mask`]); answers of up to two receives.
    pub fn client_io(queue_depth: u16, limits: QueueLimits) -> Result<Self, QueueError> {
        let depth = u32::from(queue_depth);
        let wanted = Self {
            send: depth * 7 / 2 + 1,
            recv: depth * 3 + 1,
        };
        wanted.within(limits, (depth + client_mask(queue_depth)) * REQUEST_WORK)
    }

    /// Returns the sizes of a server's IO connection: data, invalidation and answer for each
    /// response, and with `always_invalidate` the invalidation and registration of the chunk.
    /// Receives as for [`Self::admin`]. On a device with shorter send queues answers wait for
    /// entries earlier; the invalidations, which all requests may post at the same time, always
    /// fit.
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

    /// Returns the maximum number of answers on the send queue of a server's connection.
    pub fn answers(&self, queue_depth: u16, always_invalidate: bool) -> u32 {
        let revocations = Self::revocations(queue_depth, always_invalidate);
        (self.send.saturating_sub(revocations) / ANSWER_WORK).max(1)
    }

    /// Returns the maximum number of posted invalidations.
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

    /// Omits a few entries of the send queue, at most a 16th, if that halves the length of the
    /// common completion queue, which is rounded up to a power of two. An answer without an entry
    /// waits.
    const fn fitted(self) -> Self {
        // Two for draining, and one that drivers keep free.
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

    /// Returns the number of entries of a common completion queue.
    const fn completions(&self) -> u32 {
        self.send.saturating_add(self.recv)
    }

    /// Shortens the send queue, down to `least_send`, until a device with these limits supports
    /// both queues and a common completion queue, with the entries for draining.
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
