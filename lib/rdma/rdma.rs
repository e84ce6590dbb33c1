// SPDX-License-Identifier: GPL-2.0

//! Safe RDMA verbs and connection manager, over `ib_core` and `rdma_cm`.
//!
//! # Objects
//!
//! Each object holds a reference to its parents, so that they can be dropped in any order:
//!
//! ```text
//! Device <- Pd <- MessageBuffers   messages, coherent memory
//!        |     <- PageMapping    blocks of pages
//!        |     <- Mr             pages under a key of their own, for the peer
//!        |     <- Qp<H> -> Cq    work requests; completions go to the handler H
//!        |     <- AddressHandle  where datagrams go
//!        <- Cq   |
//!        <- cm::CmId             the connection; its events go to a handler
//! ```
//!
//! # Memory
//!
//! A device reads and writes memory on its own. The rules that protect memory:
//!
//! - Work requests name local memory by [`Segment`]s, which only objects of a [`Pd`] create, and a
//!   queue pair accepts segments of its own domain only. Memory that is dropped while queue pairs
//!   of its domain exist is freed with the last of them ([`Pd`]).
//! - Memory that a device may write is only copied, and has no slices.
//! - A peer accesses only memory for which it has a key. A [`Mr`] that maps blocks keeps their
//!   pages. The pages of a [scatterlist](sg) belong to its owner, which keeps them as long as the
//!   list is mapped; an [`Unmapper`](sg::Unmapper) promises to unmap it only when the device is
//!   done with it and its keys are invalid.
//!
//! # Contexts
//!
//! Creating and dropping objects sleeps. Posting, mapping scatterlists and everything on a
//! [`WorkCompletion`] works in any context, without locks or allocations of this crate.
//!
//! # What is not here yet
//!
//! RDMA reads exist ([`Batch::read`]), atomics do not. Datagrams have no multicast.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod address_handle;
pub mod cm;
mod cq;
mod device;
mod memory;
mod port_events;
pub mod proto;
mod qp;

pub use self::{
    address_handle::{AddressHandle, Gid, PortAddress, GRH_LEN},
    cq::{Cq, Notify, PollContext},
    device::{Device, DeviceName, GidKind, PortState},
    memory::{
        message_buffers::{MessageBuffer, MessageBuffers},
        mr::Mr,
        page_mapping::{DmaDirection, ForCpu, ForDevice, PageMapping},
        pd::{Drained, Pd},
        segment::{Access, RemoteAddr, Segment, SendFlags},
        sg,
    },
    port_events::{DeviceId, PortEvents, PortWatch},
    proto::address::LinkLayer,
    qp::{
        batch::{Batch, WrBuffer},
        completion::{Opcode, Source, Success, WorkCompletion},
        config::QpConfig,
        datagram::{DatagramPort, Peer},
        recv_ring::RecvRing,
        status::WcStatus,
        transport::{Datagram, Reliable, Transport},
        OwnedQp, Qp, QpHandler,
    },
};

use kernel::prelude::*;
use rdma_sys as sys;

module! {
    type: Library,
    name: "rdma_rust",
    authors: ["The Ferrofabric developers"],
    description: "Safe RDMA verbs and connection manager",
    license: "GPL",
}

/// The owner that `rdma resource show` prints for the objects of this crate.
const CALLER: &CStr = c"rdma_rust";

struct Library {
    _ports: port_events::Registration,
    _workers: qp::Workers,
}

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library {
            _ports: port_events::Registration::new()?,
            _workers: qp::Workers::new()?,
        })
    }
}
