// SPDX-License-Identifier: GPL-2.0

//! The connection that a path keeps of its last life: `proto::recovery` decides what becomes of it.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::cm::CmId;
use rtrs_core::proto::recovery::{
    record::Operation,
    StaleConnection, //
};

use crate::client::path::Path;

impl Path {
    /// Carries out what was decided about the stale connection; dropping it sleeps.
    pub(super) fn carry_out(&self, stale_connection: StaleConnection) {
        match stale_connection {
            StaleConnection::Leave => {}
            StaleConnection::Disconnect => {
                self.did(Operation::Disconnect);
                let kept = self.stale_connection.lock().clone();
                if let Some(id) = kept {
                    // It fails if it was disconnected before.
                    let _ = id.disconnect();
                }
            }
            StaleConnection::Drop => self.drop_stale_connection(),
        }
    }

    /// Drops the stale connection, which disconnects it; sleeps. Its own event handler may call
    /// this.
    pub(super) fn drop_stale_connection(&self) {
        self.did(Operation::Drop);
        let kept = self.stale_connection.lock().take();
        drop(kept);
    }

    /// Stores a stale connection for later; returns whether there is one.
    pub(super) fn keep_stale_connection(&self, stale_connection: Option<CmId>) -> bool {
        let kept = stale_connection.and_then(|id| Arc::new(id, GFP_KERNEL).ok());
        let is_kept = kept.is_some();
        let before = core::mem::replace(&mut *self.stale_connection.lock(), kept);
        drop(before);
        is_kept
    }
}
