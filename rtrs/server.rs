// SPDX-License-Identifier: GPL-2.0

//! The server of RTRS.
//!
//! A client opens a *session* over one or more *paths*, each of which has several *connections*.
//! The session has as many *chunks* of memory as it may have requests in flight; the client
//! writes data, user message and head of a request into a chunk and says so with an immediate. The
//! server reads the head once, hands an [`Operation`] to the [`SessionService`], and answers.
//!
//! ```text
//!   Listener -- Registry -- Session -- Path -- Connection -- Receiver   what the completions say
//!                              |         |                      |
//!                            chunks    Slot, Place <-----------'        one for each chunk
//!                                        |
//!                                    Operation ---> service ---> reply
//! ```
//!
//! | folder | what |
//! |---|---|
//! | `session/` | table of sessions, what the service sees of one |
//! | `path/` | one path: connections, info exchange, chunks, heartbeat, fence, teardown |
//! | `io/` | requests: receive, check, hand to the service, answer |
//! | `listener`, `sysfs`, `quota`, `module` | who may connect, files, memory limit, what all share |

pub(crate) mod io;
pub(crate) mod listener;
pub(crate) mod module;
pub(crate) mod path;
pub(crate) mod quota;
pub(crate) mod session;
pub(crate) mod sysfs;
