// SPDX-License-Identifier: GPL-2.0

//! Requests of consumers, and their results, in types of Rust.

use crate::{
    memory::{
        AddressSpace,
        DmaRange,
        Extent, //
    },
    sys,
    Provider, //
};
use kernel::sync::Arc;

/// An address of a port.
pub type Gid = [u8; 16];

/// The limits of a device: the most of each that it has room for.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Work requests of a queue.
    pub qp_wr: u32,
    /// Segments of a send.
    pub send_sge: u32,
    /// Segments of a receive.
    pub recv_sge: u32,
    /// Pages of a registration.
    pub fast_reg_pages: u32,
    /// Places of a completion queue.
    pub cqe: u32,
    /// Page sizes, one bit each.
    pub page_sizes: u64,
    /// RDMA reads of a queue pair in flight.
    pub rd_atom: u8,
    /// Completion vectors.
    pub vectors: u32,
}

/// The places of a port's table of partition keys.
pub const PKEYS: usize = 4;

/// The properties that a subnet of InfiniBand has given to a port.
#[derive(Clone, Copy)]
pub struct Subnet {
    /// The local identifier.
    pub lid: u16,
    /// The prefix of the global identifier.
    pub prefix: u64,
    /// The partition keys; 0 is an empty place.
    pub pkeys: [u16; PKEYS],
}

/// An event that all consumers of a device are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device has failed.
    Failed,
    /// The port has another local identifier.
    LidChanged,
    /// The port has another table of partition keys.
    PkeysChanged,
    /// The subnet has a new manager: what clients have told the last one is forgotten.
    Reregister,
}

impl DeviceEvent {
    pub(crate) const fn to_raw(self) -> sys::ib_event_type {
        match self {
            Self::Failed => sys::ib_event_type_IB_EVENT_DEVICE_FATAL,
            Self::LidChanged => sys::ib_event_type_IB_EVENT_LID_CHANGE,
            Self::PkeysChanged => sys::ib_event_type_IB_EVENT_PKEY_CHANGE,
            Self::Reregister => sys::ib_event_type_IB_EVENT_CLIENT_REREGISTER,
        }
    }
}

/// The kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// The queue pair 1 of the port, for management datagrams.
    General,
    /// Datagrams.
    Datagram,
    /// Reliable connection.
    Connected,
}

/// A queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The queue of sends.
    Send,
    /// The queue of receives.
    Receive,
}

/// The attributes with which a queue pair is created.
pub struct QpInit<'a, P: Provider> {
    /// The kind.
    pub kind: QpKind,
    /// The number of the protection domain.
    pub domain: u32,
    /// The queue in which sends complete.
    pub send_cq: &'a Arc<P::Cq>,
    /// The queue in which receives complete.
    pub recv_cq: &'a Arc<P::Cq>,
    /// Places of the send queue.
    pub send_wr: u32,
    /// Places of the receive queue.
    pub recv_wr: u32,
    /// Segments of a send.
    pub send_sge: u32,
    /// Segments of a receive.
    pub recv_sge: u32,
    /// Whether each send completes, also if it does not ask for it.
    pub signal_all: bool,
}

/// A change of a queue pair.
#[derive(Clone, Copy, Default)]
pub struct QpChange {
    /// The new state, as `enum ib_qp_state`.
    pub state: Option<u32>,
    /// The number of the peer's queue pair.
    pub dest_qp_num: Option<u32>,
    /// The address of the peer's port.
    pub dest_gid: Option<Gid>,
    /// The place of its partition in the table of keys.
    pub pkey_index: Option<u16>,
    /// The key of datagrams.
    pub qkey: Option<u32>,
}

/// The address to which a datagram goes, and the one from which it comes.
#[derive(Clone, Copy)]
pub struct Datagram {
    /// The local identifier of the receiving port; 0 on Ethernet.
    pub lid: u16,
    /// The address of the receiving port.
    pub to: Gid,
    /// The address of the sending port.
    pub from: Gid,
    /// The number of the receiving queue pair.
    pub qp_num: u32,
    /// The key of datagrams.
    pub qkey: u32,
}

/// The operation of a send.
pub enum Operation<'a, P: Provider> {
    /// Sends a message to a receive.
    Send {
        /// Data for the completion of the receive, as they are on the wire.
        imm: Option<u32>,
        /// A key of the peer to invalidate.
        invalidate: Option<u32>,
        /// The receiver, of datagrams.
        datagram: Option<Datagram>,
    },
    /// Writes to memory of the peer.
    Write {
        /// The address at the peer.
        addr: u64,
        /// The peer's key.
        key: u32,
        /// Data for the completion of a receive, as they are on the wire.
        imm: Option<u32>,
    },
    /// Reads memory of the peer.
    Read {
        /// The address at the peer.
        addr: u64,
        /// The peer's key.
        key: u32,
    },
    /// Invalidates a key of the own device.
    Invalidate {
        /// The key.
        key: u32,
    },
    /// Registers memory.
    Register {
        /// The region.
        mr: &'a Arc<P::Mr>,
        /// Its new key.
        key: u32,
        /// `enum ib_access_flags`.
        access: u32,
        /// The extent of the memory.
        extent: Extent,
    },
}

/// A send that a consumer posts.
pub struct SendRequest<'a, P: Provider> {
    /// The number of the send, for its completion.
    pub id: u64,
    /// Whether it completes if it succeeds.
    pub signaled: bool,
    /// Whether the receive of the peer is to be notified.
    pub solicited: bool,
    /// The operation.
    pub operation: Operation<'a, P>,
    pub(crate) space: AddressSpace<'a>,
    pub(crate) segments: &'a [sys::ib_sge],
}

impl<P: Provider> SendRequest<'_, P> {
    /// Returns the local memory, and the key of each part.
    pub fn segments(&self) -> impl Iterator<Item = (DmaRange, u32)> + '_ {
        // SAFETY: `self` is what a consumer posts to a queue pair of this device.
        unsafe { ranges(self.space, self.segments) }
    }
}

/// Returns the memory that the segments of a work request name.
///
/// # Safety
///
/// The caller must ensure that the segments are those of a work request that a consumer posts, to a
/// queue pair of the device of `space`.
pub(crate) unsafe fn ranges<'a>(
    space: AddressSpace<'a>,
    segments: &'a [sys::ib_sge],
) -> impl Iterator<Item = (DmaRange, u32)> + 'a {
    segments.iter().map(move |segment| {
        // SAFETY: By the function requirements.
        let range = unsafe { space.range(segment.addr, u64::from(segment.length)) };
        (range, segment.lkey)
    })
}

/// The source of a datagram.
#[derive(Clone, Copy)]
pub struct Source {
    /// The number of the sending queue pair.
    pub qp_num: u32,
    /// The local identifier of the sending port; [`None`] on Ethernet, where a header tells it.
    pub lid: Option<u16>,
}

/// The kind of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// A send.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// An invalidation.
    Invalidate,
    /// A registration.
    Register,
    /// A receive that a send has used.
    Receive,
    /// A receive that an RDMA write has used.
    ReceiveOfWrite,
}

impl Completed {
    /// Returns whether it is one of the two kinds of receives.
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveOfWrite)
    }

    const fn to_raw(self) -> sys::ib_wc_opcode {
        match self {
            Self::Send => sys::ib_wc_opcode_IB_WC_SEND,
            Self::Write => sys::ib_wc_opcode_IB_WC_RDMA_WRITE,
            Self::Read => sys::ib_wc_opcode_IB_WC_RDMA_READ,
            Self::Invalidate => sys::ib_wc_opcode_IB_WC_LOCAL_INV,
            Self::Register => sys::ib_wc_opcode_IB_WC_REG_MR,
            Self::Receive => sys::ib_wc_opcode_IB_WC_RECV,
            Self::ReceiveOfWrite => sys::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
        }
    }
}

/// A completion.
#[derive(Clone, Copy)]
pub struct Completion {
    /// The number of the work request.
    pub id: u64,
    /// `enum ib_wc_status`.
    pub status: u32,
    /// The kind of the work request.
    pub completed: Completed,
    /// Bytes that were received or read.
    pub len: u32,
    /// Immediate data, as they are on the wire.
    pub imm: Option<u32>,
    /// A key that the peer has invalidated.
    pub invalidated: Option<u32>,
    /// The source of a datagram, if it was one.
    pub source: Option<Source>,
}

impl Completion {
    /// Writes the completion of `qp` for the consumer.
    pub(crate) fn write(&self, qp: *mut sys::ib_qp, to: &mut sys::ib_wc) {
        *to = sys::ib_wc::default();
        to.__bindgen_anon_1.wr_id = self.id;
        to.status = self.status;
        to.opcode = self.completed.to_raw();
        to.byte_len = self.len;
        to.qp = qp;
        let mut flags = 0;
        if let Some(imm) = self.imm {
            to.ex.imm_data = imm;
            flags |= sys::ib_wc_flags_IB_WC_WITH_IMM;
        }
        if let Some(key) = self.invalidated {
            to.ex.invalidate_rkey = key;
            flags |= sys::ib_wc_flags_IB_WC_WITH_INVALIDATE;
        }
        if let Some(source) = self.source {
            to.src_qp = source.qp_num;
            to.port_num = 1;
            if let Some(lid) = source.lid {
                to.slid = lid.into();
            } else {
                // CAST: The enumeration has four values.
                to.network_hdr_type = sys::rdma_network_type_RDMA_NETWORK_IPV6 as u8;
                flags |= sys::ib_wc_flags_IB_WC_GRH | sys::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE;
            }
        }
        // CAST: The field is an `int` in C, the constants are unsigned.
        to.wc_flags = flags as kernel::ffi::c_int;
    }
}
