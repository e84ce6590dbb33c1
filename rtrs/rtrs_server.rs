// SPDX-License-Identifier: GPL-2.0

//! RDMA Transport, server: gives clients memory to write their requests to, and hands the requests
//! to a service.
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
//! Protocol: `drivers/infiniband/ulp/rtrs`, version 2.0; all of it is in `rtrs_core::proto`.

#[path = "server/connection.rs"]
mod connection;
#[path = "server/establish.rs"]
mod establish;
#[path = "server/fence.rs"]
mod fence;
#[path = "server/heartbeat.rs"]
mod heartbeat;
#[path = "server/listener.rs"]
mod listener;
#[path = "server/memory.rs"]
mod memory;
#[path = "server/operation.rs"]
mod operation;
#[path = "server/path.rs"]
mod path;
#[path = "server/receiver.rs"]
mod receiver;
#[path = "server/region.rs"]
mod region;
#[path = "server/registry.rs"]
mod registry;
#[path = "server/reply.rs"]
mod reply;
#[path = "server/sends.rs"]
mod sends;
#[path = "server/session.rs"]
mod session;
#[path = "server/shared.rs"]
mod shared;
#[path = "server/slot.rs"]
mod slot;
#[path = "server/stats.rs"]
mod stats;
#[path = "server/sysfs.rs"]
mod sysfs;
#[path = "server/teardown.rs"]
mod teardown;

use kernel::prelude::*;

pub use self::{
    listener::Listener,
    operation::Operation,
    session::{
        Service,
        Session,
        SessionService, //
    },
};

module! {
    type: Server,
    name: "rtrs_server",
    authors: ["The Ferrofabric developers"],
    description: "RDMA Transport, server",
    license: "GPL",
}

struct Server;

impl kernel::Module for Server {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        shared::Shared::set_up()?;
        Ok(Server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        shared::Shared::tear_down();
    }
}
