// SPDX-License-Identifier: GPL-2.0

//! Completions of work requests.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    address_handle::{
        Gid,
        GRH_LEN, //
    },
    proto::header::{
        source_gid,
        HeaderKind, //
    },
    qp::status::WcStatus,
    sys, //
};
use kernel::types::Opaque;

/// The operation of a successful work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A send, with or without immediate data or invalidation.
    Send,
    /// An RDMA write, with or without immediate data.
    RdmaWrite,
    /// An RDMA read.
    RdmaRead,
    /// The invalidation of a local key.
    LocalInvalidate,
    /// The registration of a memory region.
    RegMr,
    /// A receive that a send filled.
    Receive,
    /// A receive that an RDMA write with immediate data consumed.
    ReceiveRdmaWithImm,
    /// Another operation.
    Other,
}

/// The completion of a work request, valid while the handler runs.
///
/// Of one that failed, drivers set the status only, and the core does not clear the memory: what
/// else there is can be read of a [`Success`] only.
///
/// ```compile_fail,E0599
/// use rdma::{Opcode, WorkCompletion};
///
/// fn is_send(completion: &WorkCompletion) -> bool {
///     completion.opcode() == Opcode::Send
/// }
/// ```
///
/// # Invariants
///
/// The driver has set the status.
#[repr(transparent)]
pub struct WorkCompletion(Opaque<sys::ib_wc>);

impl WorkCompletion {
    /// # Safety
    ///
    /// The caller must ensure that `raw` points to a completion that a driver filled in and that
    /// stays unchanged for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn from_raw<'a>(raw: *mut sys::ib_wc) -> &'a Self {
        // SAFETY: By the function requirements; the type is a transparent wrapper.
        unsafe { &*raw.cast::<Self>() }
    }

    /// Returns whether the work request succeeded.
    #[inline(always)]
    pub fn is_success(&self) -> bool {
        // SAFETY: By the type invariants, the status is set.
        unsafe { (*self.0.get()).status == sys::ib_wc_status_IB_WC_SUCCESS }
    }

    /// Returns the completion of a work request that succeeded.
    #[inline(always)]
    pub fn success(&self) -> Option<&Success> {
        self.is_success().then(|| {
            let this = core::ptr::from_ref(self).cast::<Success>();
            // INVARIANT: The status is that of success.
            // SAFETY: The types are transparent wrappers of the same.
            unsafe { &*this }
        })
    }

    /// Returns the completion of a work request that succeeded, or why it failed.
    #[inline(always)]
    pub fn status(&self) -> Result<&Success, WcStatus> {
        if let Some(success) = self.success() {
            return Ok(success);
        }
        // SAFETY: By the type invariants, the status is set.
        Err(WcStatus::from_raw(unsafe { (*self.0.get()).status }))
    }
}

/// The completion of a work request that succeeded.
///
/// # Invariants
///
/// The status is success: the driver has set the operation; of a receive also the length, the flags
/// and what these name, and of a datagram who has sent it. Any value is valid for their types.
#[repr(transparent)]
pub struct Success(Opaque<sys::ib_wc>);

impl Success {
    /// Returns the operation of the work request.
    #[inline(always)]
    pub fn opcode(&self) -> Opcode {
        // SAFETY: By the type invariants.
        match unsafe { (*self.0.get()).opcode } {
            sys::ib_wc_opcode_IB_WC_SEND => Opcode::Send,
            sys::ib_wc_opcode_IB_WC_RDMA_WRITE => Opcode::RdmaWrite,
            sys::ib_wc_opcode_IB_WC_RDMA_READ => Opcode::RdmaRead,
            sys::ib_wc_opcode_IB_WC_LOCAL_INV => Opcode::LocalInvalidate,
            sys::ib_wc_opcode_IB_WC_REG_MR => Opcode::RegMr,
            sys::ib_wc_opcode_IB_WC_RECV => Opcode::Receive,
            sys::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => Opcode::ReceiveRdmaWithImm,
            _ => Opcode::Other,
        }
    }

    /// Returns the number of bytes that a receive got, or that an RDMA write with immediate data
    /// wrote. Of no meaning for other operations.
    #[inline(always)]
    pub fn byte_len(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { (*self.0.get()).byte_len }
    }

    /// Returns the immediate data that came with the message of a receive, in host order.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        if !self.has_flag(sys::ib_wc_flags_IB_WC_WITH_IMM) {
            return None;
        }
        // SAFETY: The flag says that this member of the union is the valid one.
        Some(u32::from_be(unsafe { (*self.0.get()).ex.imm_data }))
    }

    /// Returns the local key that the peer invalidated together with the message of a receive.
    #[inline(always)]
    pub fn invalidated_key(&self) -> Option<u32> {
        if !self.has_flag(sys::ib_wc_flags_IB_WC_WITH_INVALIDATE) {
            return None;
        }
        // SAFETY: The flag says that this member of the union is the valid one.
        Some(unsafe { (*self.0.get()).ex.invalidate_rkey })
    }

    /// Returns who has sent the datagram that a receive got.
    #[inline(always)]
    pub fn source(&self) -> Source {
        let wc = self.0.get();
        // SAFETY: By the type invariants.
        let mut source = unsafe {
            sys::ib_wc {
                src_qp: (*wc).src_qp,
                slid: (*wc).slid,
                wc_flags: (*wc).wc_flags,
                sl: (*wc).sl,
                // The other fields are not for later.
                ..Default::default()
            }
        };
        if self.has_flag(sys::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE) {
            // SAFETY: The flag says that the field is set.
            source.network_hdr_type = unsafe { (*wc).network_hdr_type };
        }
        Source(source)
    }

    #[inline(always)]
    fn has_flag(&self, flag: sys::ib_wc_flags) -> bool {
        // SAFETY: By the type invariants.
        let flags = unsafe { (*self.0.get()).wc_flags };
        flags & flag as i32 != 0
    }
}

/// The sender of a datagram.
#[derive(Clone, Copy)]
pub struct Source(sys::ib_wc);

// SAFETY: The copy has no pointers.
unsafe impl Send for Source {}
// SAFETY: As above.
unsafe impl Sync for Source {}

impl Source {
    /// Returns the number of the sender's queue pair.
    pub fn qp_number(&self) -> u32 {
        self.0.src_qp
    }

    /// Returns the local identifier of the sender's port; of no meaning on RoCE.
    pub fn lid(&self) -> u16 {
        // CAST: Longer ones are those of another architecture.
        self.0.slid as u16
    }

    /// Returns the service level of the datagram.
    pub fn service_level(&self) -> u8 {
        self.0.sl
    }

    /// Returns the global identifier of the sender, which stands in the bytes before the datagram;
    /// [`None`] if it has none. Any machine on the network may have written it.
    pub fn gid(&self, header: &[u8; GRH_LEN as usize]) -> Option<Gid> {
        let has = |flag: sys::ib_wc_flags| self.0.wc_flags & flag as i32 != 0;
        let kind = match u32::from(self.0.network_hdr_type) {
            _ if !has(sys::ib_wc_flags_IB_WC_GRH) => HeaderKind::None,
            _ if !has(sys::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE) => HeaderKind::Unknown,
            sys::rdma_network_type_RDMA_NETWORK_IPV4 => HeaderKind::Ipv4,
            _ => HeaderKind::Global,
        };
        source_gid(header, kind).map(Gid)
    }
}
