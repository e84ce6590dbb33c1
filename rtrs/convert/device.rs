// SPDX-License-Identifier: GPL-2.0

//! What an RDMA device can do, in the protocol's words.

use rdma::Device;

use crate::proto::{
    device::Capabilities,
    signal::QueueLimits, //
};

/// Returns what `device` is capable of.
pub fn capabilities(device: &Device) -> Capabilities {
    Capabilities {
        fast_registration: device.fast_registration(),
        iwarp: device.is_iwarp(),
        page_sizes: device.page_sizes(),
        pages_max: device.max_fast_reg_pages(),
        queues: queue_limits(device),
    }
}

/// Returns how long the queues of `device` may be.
pub fn queue_limits(device: &Device) -> QueueLimits {
    QueueLimits {
        work_requests: device.max_qp_wr(),
        completions: device.max_cqe(),
    }
}
