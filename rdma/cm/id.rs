// SPDX-License-Identifier: GPL-2.0

//! Connection identifiers.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::{
    address::{PortSpace, SocketAddress, Storage},
    core_id::IdCore,
    event::CmHandler,
    param::ConnectParam, //
};
use crate::{
    cq::Cq,
    device::Device,
    memory::pd::Pd,
    qp::{
        Qp,
        QpConfig,
        QpHandler, //
    },
    sys, //
};
use core::{
    ops::Deref,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::Arc, //
};

/// One end of a connection, as event handlers see it; [`CmId`] is its owner.
///
/// All methods may sleep and may be called in an event handler of the same identifier or anywhere
/// else in process context.
pub struct Id(Arc<IdCore>);

impl Id {
    pub(super) fn new(core: Arc<IdCore>) -> Self {
        Self(core)
    }

    pub(super) fn core(&self) -> &Arc<IdCore> {
        &self.0
    }

    pub(super) fn into_core(self) -> Arc<IdCore> {
        self.0
    }

    fn raw(&self) -> *mut sys::rdma_cm_id {
        self.0.as_raw()
    }

    /// Begins to find the device that leads to `to`; `from` chooses among several local addresses.
    ///
    /// [`Event::AddressResolved`](super::Event::AddressResolved) or
    /// [`Event::AddressError`](super::Event::AddressError) follows, the latter after `timeout_ms`
    /// at the latest. Errors that are known at once, as an address that is not a local one
    /// (`EADDRNOTAVAIL`, `ENODEV`), are returned.
    pub fn resolve_address(
        &self,
        from: Option<&SocketAddress>,
        to: &SocketAddress,
        timeout_ms: u32,
    ) -> Result {
        let mut from = from.map(|address| address.to_storage());
        let mut to = to.to_storage();
        // SAFETY: The identifier is valid; the addresses live until the call returns.
        to_result(unsafe {
            sys::rdma_resolve_addr(
                self.raw(),
                from.as_mut().map_or(ptr::null_mut(), Storage::as_mut_ptr),
                to.as_mut_ptr(),
                timeout_ms as usize,
            )
        })
    }

    /// Sets how long the device waits for an acknowledgement before it sends again:
    /// 4.096 µs · 2^`exponent`, 1 to 31. Before the route is resolved; on RoCE it counts for the
    /// peer's side as well. `EINVAL` for other exponents.
    pub fn set_ack_timeout(&self, exponent: u8) -> Result {
        if !(1..=31).contains(&exponent) {
            return Err(EINVAL);
        }
        // SAFETY: The identifier is valid.
        to_result(unsafe { sys::rdma_set_ack_timeout(self.raw(), exponent) })
    }

    /// Begins to find the way to the peer.
    ///
    /// [`Event::RouteResolved`](super::Event::RouteResolved) or
    /// [`Event::RouteError`](super::Event::RouteError) follows.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result {
        // SAFETY: The identifier is valid.
        to_result(unsafe { sys::rdma_resolve_route(self.raw(), timeout_ms as usize) })
    }

    /// Makes the connection's queue pair; once the address is resolved, and before connecting.
    ///
    /// `EEXIST` if there is one, `EINVAL` if the device is not known or not the domain's.
    pub fn create_qp<H: QpHandler>(
        &self,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        config: &QpConfig,
        handler: H,
    ) -> Result<Arc<Qp<H>>> {
        Qp::create(&self.0, pd, send_cq, receive_cq, config, handler)
    }

    /// Asks the peer for a connection; once the route is resolved.
    ///
    /// `private` is for the peer's [`ConnectRequest::private`](super::ConnectRequest::private), at
    /// most 56 bytes with IP addresses. `Established`, `Rejected`, `Unreachable` or `ConnectError`
    /// follows.
    pub fn connect(&self, param: &ConnectParam, private: &[u8]) -> Result {
        self.0.connect(param, private)
    }

    /// Ends the connection: both sides get [`Event::Disconnected`](super::Event::Disconnected), and
    /// what is posted is flushed. `EINVAL` if it was never begun.
    pub fn disconnect(&self) -> Result {
        // SAFETY: The identifier is valid.
        to_result(unsafe { sys::rdma_disconnect(self.raw()) })
    }

    /// The device, from [`Event::AddressResolved`](super::Event::AddressResolved) on.
    pub fn device(&self) -> Option<&Device> {
        self.0.device()
    }

    /// The device's port, from [`Event::AddressResolved`](super::Event::AddressResolved) on.
    pub fn port_number(&self) -> u32 {
        // SAFETY: The identifier is valid.
        unsafe { (*self.raw()).port_num }
    }

    /// Our address, once it is known.
    pub fn local_address(&self) -> Option<SocketAddress> {
        // SAFETY: The identifier is valid; the address is not changed after it was resolved.
        unsafe { Storage::read(&raw const (*self.raw()).route.addr.src_addr) }.to_address()
    }

    /// The peer's address, once it is known.
    pub fn peer_address(&self) -> Option<SocketAddress> {
        // SAFETY: As in `local_address()`.
        unsafe { Storage::read(&raw const (*self.raw()).route.addr.dst_addr) }.to_address()
    }
}

/// The owner of a connection identifier.
///
/// Dropping it disconnects, and drops the handler: there are no more events. The handler may own
/// the queue pair on the identifier, which goes then as well. If the queue pair lives longer, the C
/// identifier lives with it.
///
/// It may be dropped in its own event handler; what is said above happens when that returns.
/// Dropping it elsewhere waits for an event handler that is running: do not hold a lock that the
/// handler takes.
pub struct CmId(Id);

impl CmId {
    /// Makes an identifier for the active side of a connection (`rdma_create_id()`).
    pub fn new(handler: impl CmHandler, ports: PortSpace) -> Result<Self> {
        let handler: KBox<dyn CmHandler> = KBox::new(handler, GFP_KERNEL)?;
        let core = IdCore::empty(handler)?;
        // SAFETY: The network name space is a static. No event comes before the first request, and
        // the context is set before that.
        let raw = from_err_ptr(unsafe {
            sys::__rdma_create_kernel_id(
                &raw mut kernel::bindings::init_net,
                IdCore::entry(),
                ptr::null_mut(),
                ports.as_raw(),
                sys::ib_qp_type_IB_QPT_RC,
                crate::CALLER.as_char_ptr(),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The identifier is new and ours.
        Ok(Self(Id::new(unsafe {
            IdCore::attach(core, raw, None, false)
        })))
    }

    /// The owner of an identifier that was accepted.
    pub(super) fn from_id(id: Id) -> Self {
        Self(id)
    }
}

impl Deref for CmId {
    type Target = Id;

    fn deref(&self) -> &Id {
        &self.0
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // The peer is told even if the queue pair lives on. An error means that there is no
        // connection.
        let _ = self.0.disconnect();
        self.0.core().close();
    }
}
