// SPDX-License-Identifier: GPL-2.0

//! The memory of a session: at a server, which limits the memory of all sessions, and at a client,
//! whose server decides the number of requests.
//!
//! The size of the chunks is exact. The other memory of a path and a connection depends on the RDMA
//! device; the figures here are those of the software device rxe, rounded up.

use super::{
    chunk_policy::ChunkPolicy,
    geometry::Geometry,
    signal::QueueSizes, //
};

/// The bytes of a path per chunk: the request's context, the mapping, the registration and the
/// message with the new key.
const PATH_BYTES_PER_CHUNK: u64 = 2048;

/// The bytes of one entry of a send queue, its completion included.
const SEND_ENTRY_BYTES: u64 = 384;

/// The bytes of one entry of a receive queue, its completion included.
const RECV_ENTRY_BYTES: u64 = 192;

/// Returns the bytes of a session's chunks.
pub const fn session_bytes(geometry: &Geometry) -> u64 {
    geometry.queue_depth() as u64 * geometry.chunk_size() as u64
}

/// Returns the bytes of a path of the session, without its connections.
pub const fn path_bytes(geometry: &Geometry, policy: ChunkPolicy) -> u64 {
    geometry.queue_depth() as u64 * (PATH_BYTES_PER_CHUNK + policy.copy_bytes() as u64)
}

/// Returns the bytes of a connection.
pub const fn connection_bytes(sizes: &QueueSizes) -> u64 {
    (sizes.send as u64 * SEND_ENTRY_BYTES).saturating_add(sizes.recv as u64 * RECV_ENTRY_BYTES)
}

/// The bytes of a client's path per request: the block layer's request with its scatter list, the
/// registration, the message and the request table's entry.
const CLIENT_BYTES_PER_REQUEST: u64 = 10 << 10;

/// Returns the bytes of a client's path with this many IO connections, the requests of its session
/// included. The entries of its queues have more segments than a server's and take about twice the
/// memory.
pub const fn client_bytes(queue_depth: u16, connections: u16, io: &QueueSizes) -> u64 {
    // No overflow: the largest sum is far below 2^64.
    let queues = connections as u64 * 2 * connection_bytes(io);
    queue_depth as u64 * CLIENT_BYTES_PER_REQUEST + queues
}

/// Returns the default limit: a quarter of the machine's memory, in MiB and at least 1.
pub const fn default_limit_mib(memory_bytes: u64) -> u32 {
    let mib = (memory_bytes / 4) >> 20;
    match mib {
        0 => 1,
        // CAST: The value was compared first.
        _ if mib <= LIMIT_MIB_MAX as u64 => mib as u32,
        _ => LIMIT_MIB_MAX,
    }
}

/// Returns whether a machine of `total` bytes, of which `available` are free, can spare `bytes`: a
/// 16th of its memory stays free, independent of the limit. Otherwise clients could use up the
/// memory of the server, and the kernel would kill programs or panic.
pub const fn is_to_spare(bytes: u64, available: u64, total: u64) -> bool {
    match available.checked_sub(bytes) {
        Some(left) => left >= total / 16,
        None => false,
    }
}

/// The maximum limit, in MiB.
pub const LIMIT_MIB_MAX: u32 = u32::MAX - 1;

/// Returns the usage after `bytes` more, or `None` if the limit does not permit them. A `limit_mib`
/// of 0 means no limit.
pub const fn charge(used: u64, bytes: u64, limit_mib: u32) -> Option<u64> {
    match used.checked_add(bytes) {
        Some(sum) if limit_mib == 0 || sum <= (limit_mib as u64) << 20 => Some(sum),
        _ => None,
    }
}
