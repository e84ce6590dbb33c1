// SPDX-License-Identifier: GPL-2.0

//! The transport services of queue pairs.

use crate::sys;

/// A transport service: what a queue pair can be asked to send, and to whom.
pub trait Transport: sealed::Type + 'static {}

/// Reliable connection: messages and remote memory of one peer, in order, repeated if lost.
pub struct Reliable;

/// Unreliable datagram: messages of at most one packet to any peer; some are lost, some come twice,
/// and none is missed by its sender.
pub struct Datagram;

impl Transport for Reliable {}
impl Transport for Datagram {}

pub(crate) mod sealed {
    /// A trait that other crates cannot implement: the operations of a queue pair depend on it.
    pub trait Type {
        /// `enum ib_qp_type`.
        const QP_TYPE: super::sys::ib_qp_type;
        /// Each send names the handle of an address.
        const IS_ADDRESSED: bool;
    }
}

impl sealed::Type for Reliable {
    const QP_TYPE: sys::ib_qp_type = sys::ib_qp_type_IB_QPT_RC;
    const IS_ADDRESSED: bool = false;
}

impl sealed::Type for Datagram {
    const QP_TYPE: sys::ib_qp_type = sys::ib_qp_type_IB_QPT_UD;
    const IS_ADDRESSED: bool = true;
}
