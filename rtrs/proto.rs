// SPDX-License-Identifier: GPL-2.0

//! The RTRS protocol as pure code: it decides, the drivers carry out.
//!
//! What this folder promises: no `unsafe`, no kernel types, no allocation, no lock, no clock, no
//! log and no panic. Whatever it is told, by a peer or by a writer of sysfs, it answers with a
//! value or with an error that names the field. The same files are compiled into `rtrs_core` and,
//! for tests, into a crate of the host (`tools/proto`).
//!
//! The protocol is RTRS 2.0 as spoken by the in-tree C driver (`drivers/infiniband/ulp/rtrs`).

#![forbid(unsafe_code)]

pub mod addr;
pub mod admission;
pub mod agreement;
pub mod budget;
pub mod device;
pub mod first_connect;
pub mod geometry;
pub mod handshake;
pub mod heartbeat;
pub mod imm;
pub mod info;
pub mod outage;
pub mod params;
pub mod path;
pub mod permit;
pub mod policy;
pub mod quarantine;
pub mod recovery;
pub mod request;
pub mod settings;
pub mod signal;
pub mod stats;
pub mod wire;

/// Magic number of both connection messages.
pub const MAGIC: u16 = 0x1bbd;

/// Protocol version on the wire: major 2 in the high byte, minor 0 in the low one.
pub const VERSION: u16 = 0x0200;

/// The part of [`VERSION`] that both sides insist on.
pub const VERSION_MAJOR: u16 = VERSION >> 8;

/// Default TCP port (and low half of the IB service id) of a server.
pub const DEFAULT_PORT: u16 = 1234;

/// Most chunks that one session may have.
pub const QUEUE_DEPTH_MAX: u16 = 65535;

/// Bits of an immediate that are left for its payload.
pub const IMM_PAYLOAD_BITS: u32 = 28;

/// Upper bound of the signalling interval.
pub const SERVICE_QUEUE_DEPTH: u16 = 512;

/// Most paths of one session.
pub const PATHS_MAX: usize = 128;

/// Most connections of one path that a server lets a client ask for.
pub const CONNECTIONS_MAX: u16 = 4096;

/// Smallest chunk, in bytes.
pub const CHUNK_SIZE_MIN: u32 = 8192;

/// Part of each chunk, in bytes, that is kept for heads and user messages.
pub const HDR_SIZE_MAX: u32 = 4096;

/// Time between two heartbeats, in milliseconds.
pub const HEARTBEAT_INTERVAL_MS: u32 = 5000;

/// Heartbeats that may stay unanswered; one more and the path is given up.
pub const HEARTBEAT_MISSED_MAX: u32 = 5;

/// Time allowed for each step of a connection's set-up and for an orderly disconnect, in
/// milliseconds.
pub const CONNECT_TIMEOUT_MS: u32 = 30_000;

/// Pause between a fault of a path and the first word about it to the peer, in milliseconds.
///
/// A link that is going down refuses packets for a moment. The queue pair of the connection manager
/// of rxe does not survive such a refusal, and without it no connection is made over the device any
/// more until somebody removes and adds it.
pub const LINK_SETTLE_MS: u32 = 100;

/// Most segments of one IO.
pub const SEGMENTS_MAX: u16 = 128;

/// Listen backlog of a server.
pub const LISTEN_BACKLOG: i32 = 64;

/// How often a client's adapter repeats what was not acknowledged before the path is given up:
/// after 268 ms each (a queue pair's timeout of 2^16 * 4.096 us), so that silence counts as 0.8 s.
///
/// The connection manager's default and the C driver's seven retries come to 4.3 s, in which every
/// request on the path waits; here a path is lost and found again at little cost.
pub const RETRY_COUNT: u8 = 2;

/// Longest session name in bytes: its wire field has 255, the last for the NUL.
pub const SESSION_NAME_MAX: usize = 254;
