// SPDX-License-Identifier: GPL-2.0

//! Parameters of a connection.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use crate::sys;
use kernel::prelude::*;

/// What the two sides agree upon when they connect (`struct rdma_conn_param`).
///
/// The default is what a protocol without RDMA reads needs: no reads, and retries without end for a
/// peer that has no receive posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectParam {
    /// RDMA reads and atomics that we may have under way.
    pub initiator_depth: u8,
    /// RDMA reads and atomics of the peer that we answer at a time.
    pub responder_resources: u8,
    /// How often a message is sent again before the connection is given up, 0..=7. Active side
    /// only.
    pub retry_count: u8,
    /// How often a message for which the peer has no receive is sent again, 0..=7; 7 is for ever.
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
    /// The C parameter; it refers to `private`. `EINVAL` if that has more than 255 bytes.
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
