// SPDX-License-Identifier: GPL-2.0

//! RDMA Network Block Device, client: maps block devices of servers as `/dev/rnbdN`.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | messages, flags, the `map_device` line: pure code, the same on the host |
//! | `client/` | sessions, devices, requests, sysfs |
//!
//! The transport is `rtrs_client`; the block layer's side is `block_ext`. The files for user space
//! are those of the in-tree C driver of the same name.

pub mod proto;

mod client;
mod pi_stats;
mod shown;
mod tuples;

use kernel::prelude::*;
use kernel_ext::module_param_bool;

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

module_param_bool!(
    ASSUME_CACHE_LOSS,
    "assume_cache_loss",
    false,
    "Take each reopening of a device by a server that does not tell its boot, as the C driver, for \
     a power failure that has emptied its cache: the next flush fails if there may be writes to \
     lose (default: N)"
);

/// The module. Its drop unmaps all devices.
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
