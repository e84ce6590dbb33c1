// SPDX-License-Identifier: GPL-2.0

//! Queue pairs for datagrams.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    address_handle::{
        AddressHandle,
        PortAddress, //
    },
    cq::Cq,
    memory::{
        pd::Pd,
        segment::{
            Segment,
            SendFlags, //
        }, //
    },
    qp::{
        batch::WrBuffer,
        config::QpConfig,
        origin::Origin,
        transport::Datagram,
        OwnedQp,
        Qp,
        QpHandler, //
    },
    sys, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// The port of a queue pair for datagrams, and the key that these must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPort {
    /// The number of the port, from 1 on.
    pub port: u8,
    /// The index of its global identifier.
    pub gid_index: u8,
    /// The index of its partition key: datagrams of another partition are dropped by the device,
    /// and those of a limited member unless this port is a full one.
    pub pkey_index: u16,
    /// The key: datagrams with another one are dropped by the device. The top bit is for the
    /// kernel's own services.
    pub qkey: u32,
}

/// The receiver of a datagram.
#[derive(Clone, Copy)]
pub struct Peer<'a> {
    /// The address of its port.
    pub address: &'a AddressHandle,
    /// The number of its queue pair.
    pub qp_number: u32,
    /// The key of its queue pair.
    pub qkey: u32,
}

impl<H: QpHandler<Transport = Datagram>> Qp<H> {
    /// Creates a queue pair on a port, ready to receive and to send. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the device has no such port or index, or no queues of that length.
    pub fn datagram(
        pd: &Arc<Pd>,
        (send_cq, receive_cq): (&Arc<Cq>, &Arc<Cq>),
        config: &QpConfig,
        port: &DatagramPort,
        handler: H,
    ) -> Result<OwnedQp<H>> {
        let to_itself = PortAddress::own(pd.device(), port.port, port.gid_index)?;
        let origin = Origin::Device(AddressHandle::new(pd, &to_itself)?);
        let qp = Self::create(origin, pd, send_cq, receive_cq, config, handler)?;
        // SAFETY: The queue pair is valid, and in the state in which it was created.
        to_result(unsafe {
            sys::rdma_helper_datagram_start(qp.raw, port.port.into(), port.pkey_index, port.qkey)
        })?;
        Ok(qp)
    }

    /// Gives the queue pair another key: datagrams with the old one are dropped from now on.
    /// Posted work requests stay posted. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `ib_modify_qp()`, as for a queue pair in the error state.
    pub fn set_qkey(&self, qkey: u32) -> Result {
        // SAFETY: By the type invariants, the queue pair is valid.
        to_result(unsafe { sys::rdma_helper_set_qkey(self.raw, qkey) })
    }

    /// Sends one datagram, with immediate data or without; a [batch](Self::batch) of one work
    /// request. One that is longer than a packet is lost without an error.
    pub fn send_to<const S: usize>(
        &self,
        tag: u32,
        message: [Segment<'_>; S],
        to: Peer<'_>,
        imm: Option<u32>,
        flags: SendFlags,
    ) -> Result {
        let mut space = WrBuffer::new();
        let mut batch = self.batch::<1, S>(&mut space);
        batch.send_to(tag, &message, to, imm, flags);
        batch.post()
    }
}
