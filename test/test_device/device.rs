// SPDX-License-Identifier: GPL-2.0

//! The device: it carries out what `proto` decides.
//!
//! The queue pairs share a `Network`, whose engines execute their work requests. An engine has the
//! tables of the network for reading while it executes a send of a connection, and for writing
//! while it executes or flushes anything else. While another thread has them for writing, no memory
//! is copied: destroying a queue pair, and a region, does so.

mod cq;
mod execute;
mod mr;
mod network;
mod provider;
mod qp;
mod send_work;
mod step;
mod sysfs;
mod tables;

pub(crate) use self::{
    network::Network,
    provider::TestDevice,
    sysfs::Folder, //
};
