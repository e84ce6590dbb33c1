// SPDX-License-Identifier: GPL-2.0

//! The server: stores, and the sessions of clients.
//!
//! ```text
//! Stores ── StoreOn (one for each store, /sys/.../ctl/stores/N) ── Engine (behind its lock)
//!    │                                                               └── Known (each client)
//!    └── Session (one for each RTRS session) ── Use (the store that it has attached to)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `stores`, `sysfs` | stores are added and deleted |
//! | `session` | clients attach |
//! | `store` | requests come to a store, a work item carries them out; its end |
//! | `engine` | requests, under the lock of the store: what `proto::store` decides |
//! | `upkeep` | segments are collected, in a work item of its own |
//! | `reading` | blocks are read, answers are made |
//! | `log`, `log_io`, `one_device` | stores on a log |
//! | `files` | files of objects, in a work item of its own |
//! | `message` | what clients send, and are answered |
//! | `medium`, `memory` | pages and tables |

mod engine;
mod files;
mod folders;
mod log;
mod log_io;
mod medium;
mod memory;
mod message;
mod one_device;
mod reading;
mod session;
mod store;
mod stores;
mod sysfs;
mod upkeep;

use kernel_ext::ratelimit::RateLimit;

pub(crate) use self::{
    memory::DEPTH,
    session::RtrsService,
    stores::Stores,
    sysfs::Control, //
};

/// The rate limit of log lines about sessions and their messages.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);
