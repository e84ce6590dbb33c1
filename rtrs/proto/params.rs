// SPDX-License-Identifier: GPL-2.0

//! The ranges of the server's module parameters.

use super::{
    geometry::{
        Geometry,
        GeometryError, //
    },
    CHUNK_SIZE_MIN,
    QUEUE_DEPTH_MAX, //
};
use ferro_proto::errno::Errno;

/// The default of `max_chunk_size`, in bytes.
pub const MAX_CHUNK_SIZE_DEFAULT: i32 = 128 << 10;

/// The default of `sess_queue_depth`.
pub const SESS_QUEUE_DEPTH_DEFAULT: i32 = 512;

/// The default of `always_invalidate`.
pub const ALWAYS_INVALIDATE_DEFAULT: bool = true;

/// The default of the server's `heartbeat_interval_ms`. A C client acknowledges at once,
/// independent of its own interval.
pub const SERVER_HEARTBEAT_INTERVAL_MS_DEFAULT: u32 = 1000;

/// The range of `heartbeat_interval_ms`.
pub const HEARTBEAT_INTERVAL_MS_MIN: u32 = 100;
/// The upper end of that range.
pub const HEARTBEAT_INTERVAL_MS_MAX: u32 = 60_000;

/// The default of the server's `heartbeat_missed_max`.
pub const SERVER_HEARTBEAT_MISSED_MAX_DEFAULT: u32 = 4;

/// The range of `heartbeat_missed_max`.
pub const HEARTBEAT_MISSED_MAX_MIN: u32 = 1;
/// The upper end of that range.
pub const HEARTBEAT_MISSED_MAX_MAX: u32 = 100;

/// The reason why the module does not load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// `sess_queue_depth` is not 1 to 65535.
    SessQueueDepth(i32),
    /// `max_chunk_size` is below 8192 or not a power of two.
    MaxChunkSize(i32),
    /// The bits of both do not fit the 28 bits of the immediate.
    ImmediateBits,
}

impl ParamError {
    /// Returns the error of the module's load.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl core::fmt::Display for ParamError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ParamError::SessQueueDepth(d) => {
                write!(f, "sess_queue_depth={d} is not in 1..={QUEUE_DEPTH_MAX}")
            }
            ParamError::MaxChunkSize(s) => write!(
                f,
                "max_chunk_size={s} is not a power of two of at least {CHUNK_SIZE_MIN}"
            ),
            ParamError::ImmediateBits => f.write_str(
                "sess_queue_depth chunks of max_chunk_size bytes need more than 28 bits: \
                 make either smaller",
            ),
        }
    }
}

/// Checks `max_chunk_size` and `sess_queue_depth`.
pub fn check(max_chunk_size: i32, sess_queue_depth: i32) -> Result<Geometry, ParamError> {
    let depth = match u32::try_from(sess_queue_depth) {
        Ok(d @ 1..) if d <= u32::from(QUEUE_DEPTH_MAX) => d,
        _ => return Err(ParamError::SessQueueDepth(sess_queue_depth)),
    };
    let size = match u32::try_from(max_chunk_size) {
        Ok(s) if s >= CHUNK_SIZE_MIN && s.is_power_of_two() => s,
        _ => return Err(ParamError::MaxChunkSize(max_chunk_size)),
    };
    Geometry::new(depth, size).map_err(|e| match e {
        GeometryError::QueueDepth => ParamError::SessQueueDepth(sess_queue_depth),
        GeometryError::ChunkSize => ParamError::MaxChunkSize(max_chunk_size),
        GeometryError::ImmediateBits => ParamError::ImmediateBits,
    })
}
