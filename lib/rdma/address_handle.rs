// SPDX-License-Identifier: GPL-2.0

//! The addresses of datagrams.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub(crate) mod retirement;

use self::retirement::Node;
use crate::{
    device::Device,
    memory::pd::Pd,
    proto::{
        address::route,
        header::HEADER_LEN, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};

/// The bytes before a datagram in the memory of its receive: the global routing header, or room
/// for it.
// CAST: A small constant.
pub const GRH_LEN: u32 = HEADER_LEN as u32;

/// A global identifier of a port: an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

/// The address of a port of a peer, and from which port it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAddress {
    /// The peer's global identifier. RoCE needs it; InfiniBand uses it between subnets only.
    pub gid: Option<Gid>,
    /// The local identifier that the subnet manager gave it, or the router on the way to it;
    /// ignored by RoCE.
    pub lid: u16,
    /// The service level, 0 to 15.
    pub service_level: u8,
    /// The port of this machine, from 1 on.
    pub port: u8,
    /// The index of this port's own global identifier.
    pub gid_index: u8,
    /// The traffic class of a global routing header, which InfiniBand has between subnets only.
    /// With RoCE version 2 it is that of the IP packet: six bits of DSCP, then two of ECN.
    pub traffic_class: u8,
}

/// The number of routers that a datagram may pass.
const HOP_LIMIT: u8 = 64;

impl PortAddress {
    /// Returns the address of a port of `device` itself, with service level and traffic class 0.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` or what the device says if it has no such port or index.
    pub fn own(device: &Device, port: u8, gid_index: u8) -> Result<Self> {
        let gid = device.gid(port, gid_index)?;
        Ok(Self {
            gid: (gid != Gid::default()).then_some(gid),
            lid: device.port(port)?.lid,
            service_level: 0,
            port,
            gid_index,
            traffic_class: 0,
        })
    }

    /// Returns which fields the address has on a port of `device`.
    fn to_raw(self, device: &Device) -> Result<sys::rdma_helper_peer> {
        let link = device.port(self.port)?.link;
        let own = device.gid(self.port, self.gid_index)?;
        let gid = self.gid.as_ref().map(|gid| &gid.0);
        let found = route(link, &own.0, gid, self.lid, self.service_level);
        let route = found.map_err(|_| EINVAL)?;
        Ok(sys::rdma_helper_peer {
            gid: self.gid.unwrap_or_default().0,
            flow_label: route.flow_label,
            lid: route.lid,
            port: self.port,
            sl: self.service_level,
            gid_index: self.gid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: self.traffic_class,
            is_global: route.is_global,
        })
    }
}

/// An address to which queue pairs of a domain send datagrams (`struct ib_ah`). Its clones are the
/// same handle.
///
/// Sends that are under way use it. After the drop of its last clone it is therefore kept until
/// each queue pair of its domain has completed as many signaled sends as were posted by then (one
/// more, if it has ever had a post whose last send was not signaled), or is drained. It is
/// destroyed when the next handle of the domain is made or dropped, or a queue pair closed or
/// dropped. [`AddressHandle::new`] sees to it that not too many wait.
///
/// The drop of the last clone sleeps.
#[derive(Clone)]
pub struct AddressHandle(Arc<Owned>);

/// The owner of a handle.
struct Owned {
    pd: Arc<Pd>,
    node: ManuallyDrop<KBox<Node>>,
}

impl AddressHandle {
    /// Creates a handle for an address. Looks its MAC address up, if it has one. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there is no such port or index, if RoCE gets no global identifier, or
    /// InfiniBand no local one; `EAGAIN` if [so many](crate::proto::retirement::WAITING_MAX)
    /// handles of the domain that were dropped wait for their sends; otherwise what the look-up
    /// says.
    pub fn new(pd: &Arc<Pd>, to: &PortAddress) -> Result<Self> {
        let peer = to.to_raw(pd.device())?;
        // SAFETY: The domain is valid, and the address is read during the call.
        Self::adopt(pd, || unsafe {
            sys::rdma_helper_create_ah(pd.as_raw(), &peer)
        })
    }

    /// Takes the handle that `create` makes.
    fn adopt(pd: &Arc<Pd>, create: impl FnOnce() -> *mut sys::ib_ah) -> Result<Self> {
        pd.handles().make_room()?;
        let raw = from_err_ptr(create())?;
        // INVARIANT: The handle was just created.
        let raw = RawHandle(NonNull::new(raw).ok_or(ENOMEM)?);
        let owned = Owned {
            pd: pd.clone(),
            node: ManuallyDrop::new(Node::new(raw)?),
        };
        Ok(Self(Arc::new(owned, GFP_KERNEL)?))
    }

    /// Returns whether queue pairs of `pd` may use it.
    #[inline(always)]
    pub fn belongs_to(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.0.pd, pd)
    }

    /// Returns the handle, for a send that [`Qp::post_send`](crate::Qp::post_send) posts.
    #[inline(always)]
    pub fn as_raw(&self) -> *mut sys::ib_ah {
        self.0.node.raw.0.as_ptr()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `self.node` is not used after this.
        let node = unsafe { ManuallyDrop::take(&mut self.node) };
        self.pd.handles().retire(node);
    }
}

/// A handle that belongs to an [`AddressHandle`], or no longer does.
///
/// # Invariants
///
/// The handle is valid and owned.
pub(crate) struct RawHandle(NonNull<sys::ib_ah>);

// SAFETY: Any thread may use and destroy an address handle.
unsafe impl Send for RawHandle {}
// SAFETY: Its users do not change it.
unsafe impl Sync for RawHandle {}

impl Drop for RawHandle {
    fn drop(&mut self) {
        // SAFETY: By the type invariants; no send uses it any more, as `retirement` has found, or
        // none has ever.
        unsafe { sys::rdma_helper_destroy_ah(self.0.as_ptr()) };
    }
}
