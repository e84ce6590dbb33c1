// SPDX-License-Identifier: GPL-2.0

//! The encoding of a session's chunks in the 28 payload bits of an immediate.

use super::{
    IMM_PAYLOAD_BITS,
    QUEUE_DEPTH_MAX, //
};

/// The number and size of a session's chunks, and the arithmetic between a chunk id, an offset in
/// the chunk and a request's payload: `id << mem_bits | offset`.
///
/// # Invariants
///
/// `queue_depth` and `chunk_size` are not 0, `id_bits + bits(chunk_size - 1) <= 28` and
/// `mem_bits == 28 - id_bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    queue_depth: u16,
    chunk_size: u32,
    mem_bits: u32,
}

/// The reason why a queue depth and a chunk size are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// The queue depth is 0 or above 65535.
    QueueDepth,
    /// The chunk size is 0.
    ChunkSize,
    /// The bits of ids and offsets do not fit the immediate.
    ImmediateBits,
}

/// A payload of a request that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPayload {
    /// The chunk id is not below the queue depth.
    ChunkId(u32),
    /// The offset is not below the chunk size.
    Offset(u32),
}

impl core::fmt::Display for BadPayload {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BadPayload::ChunkId(id) => write!(f, "there is no chunk {id}"),
            BadPayload::Offset(offset) => write!(f, "offset {offset} is beyond a chunk's end"),
        }
    }
}

/// Returns the number of bits of numbers below `count`: 0 for one number (C: `ilog2(0)`, D22).
const fn bits_below(count: u32) -> u32 {
    u32::BITS - count.saturating_sub(1).leading_zeros()
}

impl Geometry {
    /// Creates the geometry, and checks that `queue_depth` chunks of `chunk_size` bytes fit the
    /// immediate.
    pub const fn new(queue_depth: u32, chunk_size: u32) -> Result<Self, GeometryError> {
        if queue_depth == 0 || queue_depth > QUEUE_DEPTH_MAX as u32 {
            return Err(GeometryError::QueueDepth);
        }
        if chunk_size == 0 {
            return Err(GeometryError::ChunkSize);
        }
        let id_bits = bits_below(queue_depth);
        if id_bits + bits_below(chunk_size) > IMM_PAYLOAD_BITS {
            return Err(GeometryError::ImmediateBits);
        }
        // INVARIANT: All three conditions were checked above.
        Ok(Self {
            queue_depth: queue_depth as u16,
            chunk_size,
            mem_bits: IMM_PAYLOAD_BITS - id_bits,
        })
    }

    /// Returns that of at most `depth` chunks of this size; `None` of 0.
    pub fn with_depth_at_most(&self, depth: u16) -> Option<Self> {
        Self::new(self.queue_depth.min(depth).into(), self.chunk_size).ok()
    }

    /// Returns the number of chunks.
    #[inline]
    pub const fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// Returns the size of a chunk in bytes.
    #[inline]
    pub const fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// Returns the number of low bits of a payload that are the offset.
    #[inline]
    pub const fn mem_bits(&self) -> u32 {
        self.mem_bits
    }

    /// Splits a request's payload into chunk id and offset, both within their ranges.
    #[inline]
    pub const fn split(&self, payload: u32) -> Result<(u16, u32), BadPayload> {
        // Wrapping shifts, as the plain ones can panic; mem_bits is at most 28.
        let id = payload.wrapping_shr(self.mem_bits);
        let offset = payload & 1u32.wrapping_shl(self.mem_bits).wrapping_sub(1);
        if id >= self.queue_depth as u32 {
            return Err(BadPayload::ChunkId(id));
        }
        if offset >= self.chunk_size {
            return Err(BadPayload::Offset(offset));
        }
        // CAST: The id is below queue_depth, a u16.
        Ok((id as u16, offset))
    }

    /// Combines chunk id and offset, the inverse of [`split`](Self::split); returns `None` if
    /// either is out of its range.
    #[inline]
    pub const fn join(&self, id: u16, offset: u32) -> Option<u32> {
        if id >= self.queue_depth || offset >= self.chunk_size {
            return None;
        }
        Some((id as u32).wrapping_shl(self.mem_bits) | offset)
    }

    /// Checks the message id of a response.
    #[inline]
    pub const fn chunk_id(&self, msg_id: u32) -> Option<u16> {
        if msg_id < self.queue_depth as u32 {
            // CAST: The id is below queue_depth, a u16.
            Some(msg_id as u16)
        } else {
            None
        }
    }
}
