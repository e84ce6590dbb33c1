// SPDX-License-Identifier: GPL-2.0

//! The server of RTRS.
//!
//! A client opens a *session* over one or more *paths*, each of which has several *connections*.
//! The session has as many *chunks* of memory as it may have requests in flight; the client
//! writes data, user message and head of a request into a chunk and notifies the server with an
//! immediate. The server reads the head once, passes an [`Operation`] to the [`SessionService`],
//! and answers.
//!
//! ```text
//!   Listener -- Registry -- Session -- Path -- Connection -- Receiver     completions
//!                              |         |                      |
//!                            chunks  RequestContext, <----------'         one for each chunk
//!                                    ChunkState
//!                                        |
//!                                    Operation ---> service ---> reply
//! ```
//!
//! | folder | what |
//! |---|---|
//! | `session/` | table of sessions, the session as the service sees it |
//! | `path/` | one path: connections, info exchange, chunks, heartbeat, fence, teardown |
//! | `io/` | requests: receive, check, pass to the service, answer |
//! | `listener`, `sysfs`, `quota`, `module` | accept connects, files, memory limit, shared state |
//! | `trace` | the records of state machines |

pub(crate) mod io;
pub(crate) mod listener;
pub(crate) mod module;
pub(crate) mod path;
pub(crate) mod quota;
pub(crate) mod session;
pub(crate) mod sysfs;
pub(crate) mod trace;
