// SPDX-License-Identifier: GPL-2.0

//! The client of RTRS.
//!
//! | folder | what |
//! |---|---|
//! | `session/` | paths of a session, choice of one, fail-over, outages, admin messages, settings |
//! | `path/` | one path: connect, recover, heartbeat, statistics |
//! | `io/` | requests in flight on a connected path: send, completion, the caller's memory |
//! | `sysfs/` | files of a session and of a path |
//! | `module` | what all sessions share |
//! | `trace` | the records of state machines |
//!
//! ```text
//!   Session      list of paths, policy, outages
//!     |
//!    Path        state, heartbeat, recovery
//!     |
//!  Connections         of a connected path
//!     |   \
//!     |  RequestTable    requests in flight, chunks of the server
//!     |   /
//!  ConnectionContext   completions of one queue pair
//! ```
//!
//! `rtrs_core::proto` makes the protocol's decisions. Every failure is a
//! [`path::error::PathError`] and leads to the teardown of the path in [`path::recovery`].

pub(crate) mod io;
pub(crate) mod module;
pub(crate) mod path;
pub(crate) mod session;
pub(crate) mod sysfs;
pub(crate) mod trace;
