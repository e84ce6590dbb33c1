// SPDX-License-Identifier: GPL-2.0

//! An object cache over RDMA, server: offers stores of objects to clients.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | messages, index, claims, log: pure code, the same on the host |
//! | `server/` | sessions, stores, requests, sysfs |
//!
//! The transport is `rtrs_server`.

pub mod proto;

mod server;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::module_param_int;
use rtrs_server::Listener;

use server::{
    Control,
    RtrsService,
    Stores,
    DEPTH, //
};

module! {
    type: RiocServer,
    name: "rioc_server",
    authors: ["The Ferrofabric developers"],
    description: "An object cache over RDMA, server",
    license: "GPL",
}

module_param_int!(
    PORT_NR: u16,
    "port_nr",
    1235,
    "The port number the server is listening on (default: 1235)"
);

/// The module. Fields are dropped in declaration order: the listener ends all sessions, then stores
/// end.
struct RiocServer {
    _listener: Listener,
    _control: Control,
}

impl kernel::Module for RiocServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let port = PORT_NR.get();
        if port == 0 {
            pr_err!("not loaded: port_nr is 0, which clients cannot connect to\n");
            return Err(EINVAL);
        }
        let stores = Stores::new()?;
        let control = Control::new(stores.clone())?;
        let service = Arc::new(RtrsService(stores), GFP_KERNEL)?;
        let listener = Listener::with_queue_depth(port, DEPTH, service).inspect_err(|error| {
            pr_err!("port {port} cannot be listened on: {error:?}\n");
        })?;
        Ok(Self {
            _listener: listener,
            _control: control,
        })
    }
}
