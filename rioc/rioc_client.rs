// SPDX-License-Identifier: GPL-2.0

//! Object cache over RDMA, client: `/dev/rioc`, through which programs use the objects of servers.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | messages, answers, the ioctl, lines of sysfs: pure code, the same on the host |
//! | `client/` | sessions, operations, `/dev/rioc`, sysfs |
//!
//! The transport is `rtrs_client`.

/// The parts of the pure code that a client uses: see `proto.rs`, which the server and the host
/// have as a whole.
pub mod proto {
    pub mod answer;
    pub mod connect;
    pub mod ioctl;
    pub mod message;
    pub mod retry;
    pub mod span;
    pub mod split;
    pub mod ticket;
    pub mod wire;
}

mod client;
mod shown;

use kernel::prelude::*;
use kernel_ext::miscdevice::OwnedMiscDevice;

use client::{
    Control,
    Opened, //
};

module! {
    type: RiocClient,
    name: "rioc_client",
    authors: ["The Ferrofabric developers"],
    description: "Object cache over RDMA, client",
    license: "GPL",
}

/// The module. Its drop disconnects all sessions; no program has the device open then.
struct RiocClient {
    // Dropped first: no program opens it any more.
    _device: Pin<KBox<OwnedMiscDevice>>,
    _control: Control,
}

impl kernel::Module for RiocClient {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let control = Control::new()?;
        Ok(Self {
            _device: OwnedMiscDevice::register::<Opened>(c"rioc", module)?,
            _control: control,
        })
    }
}
