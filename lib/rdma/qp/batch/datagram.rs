// SPDX-License-Identifier: GPL-2.0

//! Batches of datagrams.

use super::{
    Batch,
    Extra, //
};
use crate::{
    memory::segment::{
        Segment,
        SendFlags, //
    },
    qp::{
        datagram::Peer,
        transport::Datagram,
        QpHandler, //
    },
    sys, //
};
use core::ptr;

/// The work requests of a queue pair for datagrams.
impl<'a, H, const N: usize, const S: usize> Batch<'a, H, N, S>
where
    H: QpHandler<Transport = Datagram>,
{
    /// Sends a datagram, with immediate data or without.
    #[inline(always)]
    pub fn send_to(
        &mut self,
        tag: u32,
        message: &[Segment<'_>],
        to: Peer<'a>,
        imm: Option<u32>,
        flags: SendFlags,
    ) {
        self.require(to.address.belongs_to(self.qp.pd()));
        let (opcode, extra) = match imm {
            None => (sys::ib_wr_opcode_IB_WR_SEND, Extra::None),
            Some(imm) => (sys::ib_wr_opcode_IB_WR_SEND_WITH_IMM, Extra::Imm(imm)),
        };
        if let Some(request) = self.push(tag, opcode, message, extra, flags) {
            // SAFETY: `push` returns a request that it has written; this writes the fields of a
            // datagram.
            unsafe {
                let datagram = &raw mut (*request).datagram;
                (&raw mut (*datagram).ah).write(to.address.as_raw());
                (&raw mut (*datagram).header).write(ptr::null_mut());
                (&raw mut (*datagram).hlen).write(0);
                (&raw mut (*datagram).mss).write(0);
                (&raw mut (*datagram).remote_qpn).write(to.qp_number);
                (&raw mut (*datagram).remote_qkey).write(to.qkey);
                (&raw mut (*datagram).pkey_index).write(0);
                (&raw mut (*datagram).port_num).write(0);
            }
        }
    }
}
