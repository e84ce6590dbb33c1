// SPDX-License-Identifier: GPL-2.0

//! RDMA Network Block Device, client: maps block devices of servers as `/dev/rnbdN`.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | messages, flags, the `map_device` line: pure code, the same on the host |
//! | `client/` | sessions, devices, requests, sysfs |
//!
//! The transport is `rtrs_client`; the block layer's side is `block_ext`. What user space
//! sees is what the in-tree C driver of the same name shows.

pub mod proto;

mod client;
mod shown;

use kernel::prelude::*;

use client::{
    Client,
    Control, //
};

module! {
    type: RnbdClient,
    name: "rnbd_client",
    authors: ["The Ferrofabric developers"],
    description: "RDMA Network Block Device, client",
    license: "GPL",
}

/// The module: dropped, it unmaps everything.
struct RnbdClient {
    _control: Control,
}

impl kernel::Module for RnbdClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _control: Control::new(Client::new()?)?,
        })
    }
}
