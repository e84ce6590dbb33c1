// SPDX-License-Identifier: GPL-2.0

//! Transfers: pages that go from one machine to another by datagrams, without a copy.
//!
//! The module is one beside `rdma`, so that machines without a cache of Gfarm do not load it. A
//! transfer is cut into [fragments](proto::layout), each a datagram whose immediate data say
//! which one it is. A [`ReceiveQp`] lays a receive over the memory of each fragment; a [`SendQp`]
//! sends each from its memory. Both are made once and used for one transfer at a time.
//!
//! ```text
//! ReceiveQp ── receive(memory) ── Receiving ── finish ── Received ── into_parts ── both
//! SendQp ── send(memory) ── Sending ── post, post, ... ── finish ── both
//! ```
//!
//! The memory belongs to a [`Lender`](kernel_ext::scatterlist::Lender), which is in the transfer
//! from its begin to its end: it comes back when each work request that names it has completed,
//! and it is unmapped. If the device does not complete them, `finish` gives the transfer back, to
//! be finished later, `end` goes on until it does, and a transfer that is dropped leaks the memory.
//!
//! A fragment fills the receive that is next, and not that of its own memory: if one is lost,
//! all that follow are displaced. The receiver's handler notes which one came where, and
//! [`Received::copy`] puts them at their places.

mod active;
pub mod proto;
mod received;
mod receiving;
mod segments;
mod sending;

pub use self::{
    active::Refused,
    received::{
        Place,
        Received, //
    },
    receiving::{
        Arrival,
        ReceiveEvents,
        ReceiveQp,
        Receiving, //
    },
    sending::{
        SendEvents,
        SendQp,
        Sending, //
    },
};

use kernel::prelude::*;
use rdma_sys as sys;

module! {
    type: Library,
    name: "rdma_transfer",
    authors: ["The Ferrofabric developers"],
    description: "Pages that go from one machine to another by datagrams, without a copy",
    license: "GPL",
}

struct Library;

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library)
    }
}
