// SPDX-License-Identifier: GPL-2.0

//! How much memory a session costs: a server, for the limit on that of all sessions, and a client,
//! whose server decides how many requests there are.
//!
//! The chunks are exact. What a path and a connection have beside them depends on the RDMA device;
//! the figures here are what the software device rxe takes, rounded up.

use super::{
    geometry::Geometry,
    signal::QueueSizes, //
};

/// Bytes that a path keeps for each chunk: the request's slot, the mapping, the registration and
/// the message with the new key.
const PATH_BYTES_PER_CHUNK: u64 = 2048;

/// Bytes of one entry of a send queue, its completion included.
const SEND_ENTRY_BYTES: u64 = 384;

/// Bytes of one entry of a receive queue, its completion included.
const RECV_ENTRY_BYTES: u64 = 192;

/// Returns the bytes of a session's chunks.
pub const fn session_bytes(geometry: &Geometry) -> u64 {
    geometry.queue_depth() as u64 * geometry.chunk_size() as u64
}

/// Returns the bytes that a path of the session costs, without its connections.
pub const fn path_bytes(geometry: &Geometry) -> u64 {
    geometry.queue_depth() as u64 * PATH_BYTES_PER_CHUNK
}

/// Returns the bytes that a connection costs.
pub const fn connection_bytes(sizes: &QueueSizes) -> u64 {
    (sizes.send as u64 * SEND_ENTRY_BYTES).saturating_add(sizes.recv as u64 * RECV_ENTRY_BYTES)
}

/// Bytes that a client's path keeps for each request: the block layer's request with its scatter
/// list, the registration, the message and the slot.
const CLIENT_BYTES_PER_REQUEST: u64 = 10 << 10;

/// Returns the bytes that a client's path with this many IO connections costs, the requests of its
/// session included. Entries of its queues have room for more segments, about twice a server's.
pub const fn client_bytes(queue_depth: u16, connections: u16, io: &QueueSizes) -> u64 {
    // No overflow: the largest sum is far below 2^64.
    let queues = connections as u64 * 2 * connection_bytes(io);
    queue_depth as u64 * CLIENT_BYTES_PER_REQUEST + queues
}

/// Returns what the limit is where nobody set one: a quarter of the machine's memory, in MiB and
/// at least 1.
pub const fn default_limit_mib(memory_bytes: u64) -> u32 {
    let mib = (memory_bytes / 4) >> 20;
    match mib {
        0 => 1,
        // CAST: Compared first.
        _ if mib <= LIMIT_MIB_MAX as u64 => mib as u32,
        _ => LIMIT_MIB_MAX,
    }
}

/// Says whether a machine of `total` bytes with `available` of them free can spare `bytes`: a 16th
/// of its memory stays for everybody else, whatever the limit. Without that a client could drive
/// the machine out of memory, and the kernel then ends programs or itself.
pub const fn is_to_spare(bytes: u64, available: u64, total: u64) -> bool {
    match available.checked_sub(bytes) {
        Some(left) => left >= total / 16,
        None => false,
    }
}

/// Largest limit that can be set, in MiB.
pub const LIMIT_MIB_MAX: u32 = u32::MAX - 1;

/// Returns how much is used after `bytes` more, or `None` if the limit does not allow them.
/// A `limit_mib` of 0 is none.
pub const fn charge(used: u64, bytes: u64, limit_mib: u32) -> Option<u64> {
    match used.checked_add(bytes) {
        Some(sum) if limit_mib == 0 || sum <= (limit_mib as u64) << 20 => Some(sum),
        _ => None,
    }
}
