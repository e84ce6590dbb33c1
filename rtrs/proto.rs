// SPDX-License-Identifier: GPL-2.0

//! The RTRS protocol as pure code: it decides, the drivers carry out the decisions.
//!
//! The code has no `unsafe`, no kernel types, no allocation, no lock, no clock, no log and no
//! panic. For every input, from a peer or from sysfs, it returns a value or an error that names the
//! field. The same files are compiled into `rtrs_core` and, for tests, into a crate of the host
//! (`tools/proto`).
//!
//! The protocol is RTRS 2.0 of the in-tree C driver (`drivers/infiniband/ulp/rtrs`).

#![forbid(unsafe_code)]

pub mod addr;
pub mod admission;
pub mod agreement;
pub mod availability;
pub mod budget;
pub mod chunk_policy;
pub mod connect_backlog;
pub mod connect_retry;
pub mod credit;
pub mod device;
pub mod failover;
pub mod fence;
pub mod geometry;
pub mod handshake;
pub mod heartbeat;
pub mod imm;
pub mod info;
pub mod invalidation;
pub mod io_queues;
pub mod outage;
pub mod params;
pub mod path;
pub mod permit;
pub mod policy;
pub mod quarantine;
pub mod read_buffers;
pub mod recovery;
pub mod request;
pub mod settings;
pub mod shortage;
pub mod signal;
pub mod stats;
pub mod timeouts;
pub mod wire;

/// The magic number of both connection messages.
pub const MAGIC: u16 = 0x1bbd;

/// The protocol version on the wire: major 2 in the high byte, minor 0 in the low one.
pub const VERSION: u16 = 0x0200;

/// The part of [`VERSION`] that must be equal on both sides.
pub const VERSION_MAJOR: u16 = VERSION >> 8;

/// The default TCP port (and low half of the IB service id) of a server.
pub const DEFAULT_PORT: u16 = 1234;

/// The maximum number of chunks of a session.
pub const QUEUE_DEPTH_MAX: u16 = 65535;

/// The number of payload bits of an immediate.
pub const IMM_PAYLOAD_BITS: u32 = 28;

/// The upper bound of the signaling interval.
pub const SERVICE_QUEUE_DEPTH: u16 = 512;

/// The maximum number of paths of a session.
pub const PATHS_MAX: usize = 128;

/// The maximum number of connections per path that a server accepts.
pub const CONNECTIONS_MAX: u16 = 4096;

/// The minimum size of a chunk, in bytes.
pub const CHUNK_SIZE_MIN: u32 = 8192;

/// The part of each chunk that is reserved for heads and user messages, in bytes.
pub const HDR_SIZE_MAX: u32 = 4096;

/// The interval between two heartbeats, in milliseconds.
pub const HEARTBEAT_INTERVAL_MS: u32 = 5000;

/// The number of heartbeats that may stay unanswered; one more fails the path.
pub const HEARTBEAT_MISSED_MAX: u32 = 5;

/// The timeout of each step of a connection's set-up and of an orderly disconnect, in milliseconds.
pub const CONNECT_TIMEOUT_MS: u32 = 30_000;

/// The delay between an error of a path and the first message about it to the peer, in
/// milliseconds.
///
/// A link that goes down rejects packets for a short time. The connection manager's queue pair of
/// rxe fails after such a rejection, and then no connection can be made over the device until the
/// administrator removes and adds it.
pub const LINK_SETTLE_MS: u32 = 100;

/// The maximum number of segments of an IO.
pub const SEGMENTS_MAX: u16 = 128;

/// The maximum number of pages of the memory region of an IO.
pub const REGION_PAGES_MAX: u16 = SEGMENTS_MAX + agreement::PAGES_BESIDE;

/// The listen backlog of a server.
pub const LISTEN_BACKLOG: i32 = 64;

/// The default number of retransmissions of a client's adapter before the path fails: after 268 ms
/// each (a queue pair timeout of 2^16 * 4.096 us), so a peer that does not acknowledge is detected
/// after 0.8 s.
///
/// The connection manager's default timeout and the C driver's seven retries take 4.3 s, in which
/// every request on the path waits. Here a failed path reconnects at little cost.
pub const RETRY_COUNT: u8 = 2;

/// The maximum number of retransmissions: the field has three bits.
pub const RETRY_COUNT_MAX: u8 = 7;

/// The maximum length of a session name in bytes: its wire field has 255, the last one for the NUL.
pub const SESSION_NAME_MAX: usize = 254;
