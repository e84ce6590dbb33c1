// SPDX-License-Identifier: GPL-2.0

//! The capabilities of an RDMA device, for the protocol.

use rdma::Device;

use crate::proto::{
    device::Capabilities,
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
