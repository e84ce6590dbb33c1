// SPDX-License-Identifier: GPL-2.0

//! Creates the queue pair of a connection.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    cm::CmId,
    OwnedQp,
    Pd,
    QpConfig, //
};
use rtrs_core::{
    device,
    proto::signal::QueueSizes, //
};

use crate::client::{
    io::{
        connection::{
            ConnectionContext,
            Ready,
            Tags, //
        },
        table::{
            pieces_max,
            RequestTable, //
        }, //
    },
    path::{
        connect::FIRST_CONNECT,
        error::PathError,
        resources::Queues,
        Path, //
    }, //
};

/// The parameters with which the queue pair of a connection is created.
pub(super) struct Plan<'a> {
    pub(super) path: &'a Arc<Path>,
    pub(super) life: u16,
    pub(super) cid: u16,
    pub(super) tags: Tags,
    pub(super) sizes: QueueSizes,
    pub(super) signal_mask: u32,
}

impl Plan<'_> {
    /// Returns the sizes, with one segment for each work request.
    pub(super) fn config(&self) -> QpConfig {
        QpConfig {
            receive_tags: self.tags.receives(),
            ..QpConfig::new(self.sizes.send, self.sizes.recv, self.tags.count())
        }
    }

    /// Creates the queue pair, whose work requests have as many segments as the device has memory
    /// for. `requests` are those that it carries, once they are known. Sleeps.
    pub(super) fn create(
        &self,
        id: &CmId,
        pd: &Arc<Pd>,
        queues: &Queues,
        requests: Option<&Arc<RequestTable>>,
    ) -> Result<OwnedQp<ConnectionContext>, PathError> {
        let most = requests.map_or_else(|| pieces_max(pd.device()), |table| table.pieces_max());
        let mut pieces = most;
        loop {
            let ready = requests.map(|table| Ready::new(table, self.tags, self.sizes.recv));
            let ready = ready.transpose();
            let context = ConnectionContext::new(
                self.path.clone(),
                self.life,
                self.cid,
                self.tags,
                self.signal_mask,
                queues.sends.clone(),
                ready.map_err(|e| PathError::Resource("receives", e))?,
            );
            let config = QpConfig {
                max_send_sge: pieces.saturating_add(1),
                ..self.config()
            };
            match id.create_qp(pd, &queues.sends, &queues.receives, &config, context) {
                Ok(qp) => {
                    if let Some(table) = requests.filter(|_| pieces < most) {
                        self.limit_pieces(table, pieces);
                    }
                    return Ok(qp);
                }
                Err(e) => {
                    let fewer = device::fewer_pieces(pieces, e);
                    pieces = fewer.ok_or(PathError::Resource("queue pair", e))?;
                }
            }
        }
    }

    #[cold]
    fn limit_pieces(&self, requests: &RequestTable, pieces: u32) {
        requests.limit_pieces(pieces);
        if self.life == FIRST_CONNECT {
            pr_info!(
                "session {}: the device of the path to {} has room for {} segments a request\n",
                self.path.session.name(),
                self.path.dst(),
                pieces.saturating_add(1)
            );
        }
    }
}
