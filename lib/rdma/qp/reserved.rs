// SPDX-License-Identifier: GPL-2.0

//! The room of a queue pair in its completion queues.

use crate::cq::Cq;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The entries of completion queues that a queue pair has reserved.
pub(super) struct Reserved {
    send: (Arc<Cq>, u32),
    receive: (Arc<Cq>, u32),
}

impl Reserved {
    /// Reserves entries for that many work requests; `EINVAL` if a queue is too short.
    pub(super) fn new(
        send_cq: &Arc<Cq>,
        sends: u32,
        receive_cq: &Arc<Cq>,
        receives: u32,
    ) -> Result<Self> {
        send_cq.reserve(sends)?;
        receive_cq
            .reserve(receives)
            .inspect_err(|_| send_cq.release(sends))?;
        Ok(Self {
            send: (send_cq.clone(), sends),
            receive: (receive_cq.clone(), receives),
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        for (cq, entries) in [&self.send, &self.receive] {
            cq.release(*entries);
        }
    }
}
