// SPDX-License-Identifier: GPL-2.0

//! The device: it carries out what `proto` decides.
//!
//! The queue pairs share a `Network`, whose thread executes one work request at a time
//! under the lock of the engine (`Engine`). While another thread has that lock, no
//! memory is copied: destroying a queue pair, and a region, takes it.

mod cq;
mod execute;
mod mr;
mod network;
mod provider;
mod qp;
mod send_work;
mod sysfs;

pub(crate) use self::{
    network::Network,
    provider::TestDevice,
    sysfs::Folder, //
};
