// SPDX-License-Identifier: GPL-2.0

//! The sizes of queue pairs.

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpConfig {
    /// The maximum number of send work requests in flight, including unsignaled ones.
    pub max_send_wr: u32,
    /// The maximum number of posted receive work requests.
    pub max_recv_wr: u32,
    /// The maximum number of segments of a send work request.
    pub max_send_sge: u32,
    /// The maximum number of segments of a receive work request.
    pub max_recv_sge: u32,
    /// Tags are `0..tags`; each takes 8 bytes.
    pub tags: u32,
    /// Tags below this complete by [`QpHandler::received`].
    pub receive_tags: u32,
}

impl QpConfig {
    /// Creates the sizes of a queue pair whose work requests have one segment at most.
    pub const fn new(max_send_wr: u32, max_recv_wr: u32, tags: u32) -> Self {
        Self {
            max_send_wr,
            max_recv_wr,
            max_send_sge: 1,
            max_recv_sge: 1,
            tags,
            receive_tags: 0,
        }
    }

    /// Returns the number of completion queue entries of this queue pair: one for each work request
    /// and two for draining.
    pub fn cq_entries(&self) -> u32 {
        self.max_send_wr
            .saturating_add(self.max_recv_wr)
            .saturating_add(2)
    }
}
