// SPDX-License-Identifier: GPL-2.0

//! RDMA Transport (RTRS), what client and server share.
//!
//! | module | what it holds |
//! |---|---|
//! | [`proto`] | the protocol 2.0 as pure code: messages, immediates, states, policies |
//! | [`address`] | the protocol's addresses as the connection manager takes them |
//! | [`device`] | what an RDMA device can do, in the protocol's words |
//! | [`errno`] | the protocol's error numbers as the kernel's |
//!
//! Client and server are modules of their own (`rtrs-client.ko`, `rtrs-server.ko`) that link to
//! this one.

use kernel::prelude::*;

mod convert;
pub mod proto;

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
