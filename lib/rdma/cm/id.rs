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
        config::QpConfig,
        transport::Reliable,
        OwnedQp,
        Qp,
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

/// One end of a connection, borrowed by event handlers; [`CmId`] owns it.
///
/// All methods may sleep, and work in an event handler of the same identifier and in any other
/// process context. Those that resolve, connect or create a queue pair take the identifier's
/// handler lock: elsewhere they wait for a running event handler, so the caller must not hold a
/// lock that the handler takes.
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

    /// Starts to resolve the device for the destination `to`; `from` selects a local address.
    ///
    /// [`Event::AddressResolved`](super::Event::AddressResolved) or
    /// [`Event::AddressError`](super::Event::AddressError) follows, the latter after `timeout_ms`
    /// at the latest. Returns errors that are known at once, such as `EADDRNOTAVAIL` or `ENODEV`
    /// for an address that is not local.
    pub fn resolve_address(
        &self,
        from: Option<&SocketAddress>,
        to: &SocketAddress,
        timeout_ms: u32,
    ) -> Result {
        let mut from = from.map(|address| address.to_storage());
        let mut to = to.to_storage();
        self.0.locked(|id| {
            // SAFETY: The identifier is valid, and locked; the addresses live until the call
            // returns.
            to_result(unsafe {
                sys::rdma_resolve_addr(
                    id,
                    from.as_mut().map_or(ptr::null_mut(), Storage::as_mut_ptr),
                    to.as_mut_ptr(),
                    timeout_ms as usize,
                )
            })
        })
    }

    /// Sets the time that the device waits for an acknowledgement before it retransmits: 4.096 µs ·
    /// 2^`exponent`, 1 to 31. Called before the route is resolved; on RoCE it applies to the peer
    /// as well. Returns `EINVAL` for other exponents.
    pub fn set_ack_timeout(&self, exponent: u8) -> Result {
        if !(1..=31).contains(&exponent) {
            return Err(EINVAL);
        }
        self.0.locked(|id| {
            // SAFETY: The identifier is valid, and locked.
            to_result(unsafe { sys::rdma_set_ack_timeout(id, exponent) })
        })
    }

    /// Starts to resolve the route to the peer.
    ///
    /// [`Event::RouteResolved`](super::Event::RouteResolved) or
    /// [`Event::RouteError`](super::Event::RouteError) follows.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result {
        self.0.locked(|id| {
            // SAFETY: The identifier is valid, and locked.
            to_result(unsafe { sys::rdma_resolve_route(id, timeout_ms as usize) })
        })
    }

    /// Creates the connection's queue pair, after the address is resolved and before connecting.
    ///
    /// Returns `EEXIST` if there is one, `EINVAL` if the device is not known or not the domain's,
    /// or if a completion queue has less room than [`QpConfig::cq_entries`].
    pub fn create_qp<H: QpHandler<Transport = Reliable>>(
        &self,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        config: &QpConfig,
        handler: H,
    ) -> Result<OwnedQp<H>> {
        Qp::connected(&self.0, pd, send_cq, receive_cq, config, handler)
    }

    /// Sends a connection request to the peer, after the route is resolved.
    ///
    /// `private` is for the peer's [`ConnectRequest::private`](super::ConnectRequest::private), at
    /// most 56 bytes with IP addresses. `Established`, `Rejected`, `Unreachable` or `ConnectError`
    /// follows.
    pub fn connect(&self, param: &ConnectParam, private: &[u8]) -> Result {
        self.0.connect(param, private)
    }

    /// Ends the connection: both sides get [`Event::Disconnected`](super::Event::Disconnected), and
    /// posted work requests are flushed. Returns `EINVAL` if the connection was never started.
    pub fn disconnect(&self) -> Result {
        // SAFETY: The identifier is valid.
        to_result(unsafe { sys::rdma_disconnect(self.raw()) })
    }

    /// Returns the device, from [`Event::AddressResolved`](super::Event::AddressResolved) on.
    pub fn device(&self) -> Option<&Device> {
        self.0.device()
    }

    /// Returns the device's port, from [`Event::AddressResolved`](super::Event::AddressResolved)
    /// on; 0 before.
    pub fn port_number(&self) -> u32 {
        self.0.ends().map_or(0, |ends| ends.port)
    }

    /// Returns the local address, from [`Event::AddressResolved`](super::Event::AddressResolved)
    /// on.
    pub fn local_address(&self) -> Option<SocketAddress> {
        self.0.ends()?.local
    }

    /// Returns the peer's address, from [`Event::AddressResolved`](super::Event::AddressResolved)
    /// on.
    pub fn peer_address(&self) -> Option<SocketAddress> {
        self.0.ends()?.peer
    }
}

/// The owner of a connection identifier.
///
/// Dropping it disconnects and drops the handler; no events follow. If the handler owns the queue
/// pair on the identifier, that is destroyed as well. If the queue pair lives longer, it keeps the
/// C identifier.
///
/// A drop in its own event handler takes effect when that returns. A drop elsewhere waits for a
/// running event handler, so the caller must not hold a lock that the handler takes.
pub struct CmId(Id);

impl CmId {
    /// Creates an identifier for the active side of a connection (`rdma_create_id()`). Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `rdma_create_id()`.
    pub fn new(handler: impl CmHandler, ports: PortSpace) -> Result<Self> {
        let handler: KBox<dyn CmHandler> = KBox::new(handler, GFP_KERNEL)?;
        let core = IdCore::empty(handler)?;
        // SAFETY: The network name space is a static. No event arrives before the first request,
        // and the context is set before that.
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
        // SAFETY: The identifier was just created, and the core takes its ownership.
        Ok(Self(Id::new(unsafe {
            IdCore::attach(core, raw, None, false)
        })))
    }

    /// Returns the owner of an identifier that was accepted.
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
        // Disconnects the peer also if the queue pair lives on. An error means that there is no
        // connection.
        let _ = self.0.disconnect();
        self.0.core().close();
    }
}
