// SPDX-License-Identifier: GPL-2.0

//! RDMA Transport, server: provides the chunks to which clients write their requests, and passes
//! the requests to a service.
//!
//! Protocol: `drivers/infiniband/ulp/rtrs`, version 2.0; all of it is in `rtrs_core::proto`.

use kernel::prelude::*;

mod server;

pub use server::{
    io::{
        operation::Operation,
        operation_queue::OperationQueue, //
    },
    listener::Listener,
    session::{
        Service,
        Session,
        SessionService,
        SharedService, //
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
        server::module::ModuleState::set_up()?;
        Ok(Server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        server::module::ModuleState::tear_down();
    }
}
