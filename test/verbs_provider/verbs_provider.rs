// SPDX-License-Identifier: GPL-2.0

//! The other side of verbs: RDMA devices in safe Rust, under `ib_core`.
//!
//! A [`Provider`] is what a device does; a [`Registration`] puts one under `ib_core`. The crate
//! holds what kernel consumers use: no user context, no shared receive queue, no atomics.
//!
//! # Memory of consumers
//!
//! A device reads and writes memory that its consumers name in work requests and registrations. A
//! [`DmaRange`] is such memory. It exists only as what a consumer has named, or as a part of it,
//! and by the contract of verbs the consumer keeps it until the work request has completed, or the
//! registration is invalidated. That a device does not access a range after that is what its
//! `unsafe impl Provider` promises; everything else of it is safe code.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod callbacks;
mod dma_device;
mod handle;
mod memory;
mod netdev;
mod registration;
mod request;

pub use self::{
    dma_device::DmaDevice,
    handle::{CqHandle, QpHandle},
    memory::{DmaRange, Extent},
    netdev::NetDevice,
    registration::Registration,
    request::{
        Completed,
        Completion,
        Datagram,
        DeviceEvent,
        Gid,
        Limits,
        Operation,
        QpChange,
        QpInit,
        QpKind,
        Queue,
        SendRequest,
        Source,
        Subnet,
        PKEYS, //
    },
};

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma_sys as sys;

const __LOG_PREFIX: &[u8] = b"verbs_provider\0";

/// The operations of an RDMA device with one port, of RoCE or InfiniBand.
///
/// Unless a method says otherwise, it may sleep.
///
/// # Safety
///
/// Implementers must ensure that they call [`DmaRange::copy_to`] and [`DmaRange::fill`]
///
/// - on a range of a work request, or a part of it, only until [`poll`](Self::poll) can return its
///   completion, and not after [`close_qp`](Self::close_qp) of its queue pair has returned;
/// - on a range from [`push_page`](Self::push_page), or a part of it, only from the execution of an
///   [`Operation::Register`] of its region until `poll` can return the completion of what
///   invalidates its key, and not after [`close_mr`](Self::close_mr) has returned.
pub unsafe trait Provider: Send + Sync + Sized + 'static {
    /// A completion queue.
    type Cq: Send + Sync + 'static;
    /// A queue pair.
    type Qp: Send + Sync + 'static;
    /// A memory region for fast registration.
    type Mr: Send + Sync + 'static;

    /// Returns what the device has room for.
    fn limits(&self) -> Limits;

    /// Returns what its subnet of InfiniBand has given to the port; [`None`], always, if it is one
    /// of RoCE. Any context.
    fn subnet(&self) -> Option<Subnet>;

    /// Takes note of an address of the port of RoCE.
    fn add_gid(&self, index: u32, gid: Gid) -> Result;

    /// Forgets an address of the port.
    fn remove_gid(&self, index: u32);

    /// Returns whether the device drains queues itself (`drain_sq`, `drain_rq`).
    fn drains(&self) -> bool;

    /// Creates a completion queue of `entries` places, of which completion vector `vector` tells.
    fn create_cq(&self, handle: Arc<CqHandle>, entries: u32, vector: u32) -> Result<Arc<Self::Cq>>;

    /// Ends the work of a completion queue, which no queue pair uses any more.
    fn close_cq(cq: &Arc<Self::Cq>);

    /// Takes the first completion. Any context.
    fn poll(cq: &Self::Cq) -> Option<(Arc<Self::Qp>, Completion)>;

    /// Asks for one notification, of completions for which the peer or an error asks only if
    /// `solicited`. Returns whether completions are there already. Any context.
    fn arm(cq: &Self::Cq, solicited: bool) -> bool;

    /// Creates a queue pair.
    fn create_qp(&self, handle: Arc<QpHandle>, init: QpInit<'_, Self>) -> Result<Arc<Self::Qp>>;

    /// Returns the handle that the queue pair was created with.
    fn handle(qp: &Self::Qp) -> &QpHandle;

    /// Returns the number of a queue pair.
    fn number(qp: &Self::Qp) -> u32;

    /// Returns the state, as `enum ib_qp_state`.
    fn state(qp: &Self::Qp) -> u32;

    /// Changes a queue pair.
    fn modify(qp: &Arc<Self::Qp>, change: &QpChange) -> Result;

    /// Posts a send. Any context.
    fn post_send(qp: &Arc<Self::Qp>, request: &SendRequest<'_, Self>) -> Result;

    /// Posts a receive. Any context.
    fn post_recv(
        qp: &Arc<Self::Qp>,
        id: u64,
        segments: impl Iterator<Item = (DmaRange, u32)>,
    ) -> Result;

    /// Posts the last work request of a queue that [is drained](Self::drains), also if the device
    /// has failed. Any context.
    fn post_last(qp: &Arc<Self::Qp>, queue: Queue, id: u64) -> Result;

    /// Begins with what was posted to a queue; called once after each list of work requests. Any
    /// context.
    fn ring_doorbell(qp: &Arc<Self::Qp>, queue: Queue);

    /// Ends the work of a queue pair: when this returns, its completions are gone, and it uses no
    /// memory of its consumer.
    fn close_qp(qp: &Arc<Self::Qp>);

    /// Creates a memory region of up to `pages` pages; returns it and its first key.
    fn create_mr(&self, domain: u32, pages: u32) -> Result<(Arc<Self::Mr>, u32)>;

    /// Forgets the pages that the next registration is for. Any context.
    fn clear_pages(mr: &Self::Mr);

    /// Adds a page for the next registration. Any context.
    fn push_page(mr: &Self::Mr, page: DmaRange) -> Result;

    /// Ends the work of a region: when this returns, its pages are not used.
    fn close_mr(mr: &Self::Mr);
}
