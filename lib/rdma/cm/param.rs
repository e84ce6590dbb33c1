// SPDX-License-Identifier: GPL-2.0

//! Parameters of a connection.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use crate::sys;
use kernel::prelude::*;

/// The parameters that the two sides negotiate when they connect (`struct rdma_conn_param`).
///
/// The default suits a protocol without RDMA reads: no reads, and unlimited retries for a peer
/// without a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectParam {
    /// The maximum number of own RDMA reads and atomics in flight.
    pub initiator_depth: u8,
    /// The maximum number of the peer's RDMA reads and atomics in flight.
    pub responder_resources: u8,
    /// The number of retransmissions before the connection fails, 0..=7. Active side only.
    pub retry_count: u8,
    /// The number of retries of a message for which the peer has no receive, 0..=7; 7 is unlimited.
    pub rnr_retry_count: u8,
}

impl Default for ConnectParam {
    fn default() -> Self {
        Self {
            initiator_depth: 0,
            responder_resources: 0,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

impl ConnectParam {
    /// Returns the C parameter, which refers to `private`; `EINVAL` if that has more than 255
    /// bytes.
    pub(crate) fn to_raw(self, private: &[u8]) -> Result<sys::rdma_conn_param> {
        Ok(sys::rdma_conn_param {
            private_data: private.as_ptr().cast(),
            private_data_len: private.len().try_into()?,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            ..Default::default()
        })
    }
}
