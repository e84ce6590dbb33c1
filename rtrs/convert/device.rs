// SPDX-License-Identifier: GPL-2.0

//! The capabilities of an RDMA device, for the protocol.

use kernel::prelude::*;
use rdma::Device;

use crate::proto::{
    device::{
        self,
        Capabilities, //
    },
    signal::QueueLimits, //
};

/// Returns the capabilities of `device`.
pub fn capabilities(device: &Device) -> Capabilities {
    Capabilities {
        fast_registration: device.fast_registration(),
        iwarp: device.is_iwarp(),
        page_sizes: device.page_sizes(),
        pages_max: device.max_fast_reg_pages(),
        queues: queue_limits(device),
    }
}

/// Returns the maximum lengths of the queues of `device`.
pub fn queue_limits(device: &Device) -> QueueLimits {
    QueueLimits {
        work_requests: device.max_qp_wr(),
        completions: device.max_cqe(),
    }
}

/// Returns the segments to try next, besides one, when a queue pair with `pieces` of them could not
/// be created because of `error`; [`None`] if fewer do not help.
pub fn fewer_pieces(pieces: u32, error: Error) -> Option<u32> {
    // That a queue is too long is ENOMEM to mlx5 and EINVAL to others.
    let is_room = error == ENOMEM || error == EINVAL;
    device::fewer_pieces(pieces).filter(|_| is_room)
}
