// SPDX-License-Identifier: GPL-2.0

//! The RNBD protocol as pure code: block device messages over RTRS.
//!
//! As in `ferro_proto` there is no `unsafe`, no kernel type, no allocation, no lock, no clock, no
//! log and no panic.
//!
//! The protocol is RNBD 2 of the in-tree C driver (`drivers/block/rnbd`).

#![forbid(unsafe_code)]

pub mod access;
pub mod admin_lock;
pub mod answer_time;
pub mod boot;
pub mod cache;
pub mod control;
pub mod device;
pub mod doubt;
pub mod flags;
pub mod identity;
pub mod io_state;
pub mod known_disk;
pub mod map;
pub mod memory;
pub mod message;
pub mod message_queue;
pub mod occasion;
pub mod path_name;
pub mod path_validation;
pub mod pi;
pub mod refusal;
pub mod retry;
pub mod slot;
pub mod submission;
pub mod told;
pub mod wire;

/// The protocol version; the minor one is not on the wire.
pub const VERSION: u8 = 2;

/// The sector size in bytes, of every sector number in the protocol.
pub const SECTOR_SIZE: u32 = 512;

/// The maximum length of a device name in bytes: its wire field has 255, the last one for the NUL.
pub const DEVICE_NAME_MAX: usize = 254;

/// The number of minors of a disk: the whole disk and its partitions.
pub const MINORS: u32 = 1 << 6;
