// SPDX-License-Identifier: GPL-2.0

//! RDMA Transport (RTRS), the common parts of client and server.
//!
//! | module | what it holds |
//! |---|---|
//! | [`proto`] | the protocol 2.0 as pure code: messages, immediates, states, policies |
//! | [`address`] | conversion of the protocol's addresses for the connection manager |
//! | [`device`] | the capabilities of an RDMA device, for the protocol |
//! | [`errno`] | conversion of the protocol's error numbers |
//! | [`trace`] | records of state machines in the kernel log |
//!
//! Client and server are separate modules (`rtrs-client.ko`, `rtrs-server.ko`) that link to this
//! one.

use kernel::prelude::*;

mod convert;
pub mod proto;
pub mod trace;

pub use convert::{
    address,
    device,
    errno, //
};

module! {
    type: Library,
    name: "rtrs_core",
    authors: ["The Ferrofabric developers"],
    description: "RDMA Transport, common parts",
    license: "GPL",
}

struct Library;

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library)
    }
}
